"""A file open for appending, as a Python file object."""

from __future__ import annotations

from peacefs.protocol.effects import Steps
from peacefs.protocol.messages import Completed, Created, Leased
from peacefs.protocol.threads import ThreadDriver

from .file_appender import abandon, append_file
from .file_objects import FileSink
from .file_writer import WriteStats


class AppendingSink(FileSink):
    """Like the sink of a new file: nothing is added until `close`, which adds all.

    `tell` counts from the beginning of the file.
    """

    def __init__(self, driver: ThreadDriver, leased: Leased) -> None:
        super().__init__(driver, Created(leased.token, leased.allocated), leased.block_bytes)
        self._leased = leased
        self._position = leased.length

    def discard(self) -> None:
        """Adds nothing, and lets others extend the file."""
        if self.closed:
            return
        super().discard()
        self._driver.run(abandon(self._leased))

    def __del__(self) -> None:
        # Who forgets to close it adds nothing; the lease is left to expire, as nobody waits for calls in here.
        if hasattr(self, "_leased"):
            super().discard()

    def _steps(self) -> Steps[tuple[Completed, WriteStats]]:
        return append_file(self._leased, self._stream, block_bytes=self._block_bytes)
