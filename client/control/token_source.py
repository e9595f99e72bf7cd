"""The bearer token that a client sends to coordinators: an argument, an environment variable, or a file.

A changed file is read again, so that a long-running program can outlive its token. The token is not verified here,
and never appears in a message, a log or a URL.
"""

from __future__ import annotations

import base64
import os
import stat
import threading
from pathlib import Path

import msgspec

from peacefs.protocol.decoding import UNREADABLE
from peacefs.protocol.errors import BadRequest
from peacefs.protocol.limits import bearer_token_characters_max

TOKEN_VARIABLE = "PEACEFS_TOKEN"
TOKEN_FILE_VARIABLE = "PEACEFS_TOKEN_FILE"


class TokenSource:
    """Provides the current token. Thread-safe."""

    def __init__(self, token: str = "", file: Path | None = None) -> None:
        """`token` takes precedence over `file`; without both there is no token. Raises BadRequest."""
        self._token = _checked(token, "the token")
        self._file = None if self._token else file
        self._lock = threading.Lock()
        self._seen: tuple[int, int, int] | None = None
        self.current()

    @classmethod
    def of(cls, token: str | None, token_file: str | os.PathLike[str] | None = None) -> TokenSource:
        """Return the source for these arguments. None means the environment's token, "" means no token."""
        if token is not None:
            return cls(token)
        if token_file is not None:
            return cls(file=Path(token_file))
        named = os.environ.get(TOKEN_FILE_VARIABLE)
        if named:
            return cls(file=Path(named))
        return cls(os.environ.get(TOKEN_VARIABLE, ""))

    def current(self) -> str:
        """Return the token, "" for none. Raises BadRequest if the file cannot be used."""
        if self._file is None:
            return self._token
        with self._lock:
            try:
                status = self._file.stat()
                seen = (status.st_mtime_ns, status.st_ino, status.st_size)
                if seen != self._seen:
                    if status.st_mode & (stat.S_IROTH | stat.S_IWOTH):
                        raise BadRequest(
                            f"every user of this machine can read the token in {self._file}: chmod 600"
                        )
                    text = self._file.read_text(encoding="ascii", errors="replace").strip()
                    if not text:
                        raise BadRequest(f"the token file {self._file} is empty")
                    self._token = _checked(text, str(self._file))
                    self._seen = seen
            except OSError as error:
                raise BadRequest(f"cannot read the token file {self._file}: {error.strerror}") from None
            return self._token

    @property
    def user(self) -> str | None:
        """The user named in the token, unverified; None without a token. Raises BadRequest."""
        token = self.current()
        if not token:
            return None
        payload = token.split(".")[1]
        try:
            raw = base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4))
            return msgspec.json.decode(raw, type=dict[str, object]).get("sub")  # type: ignore[return-value]
        except (ValueError, *UNREADABLE):
            raise BadRequest("the token cannot be read: it is not as `peacefs token create` shows it") from None


def _checked(token: str, where: str) -> str:
    if token and (
        len(token) > bearer_token_characters_max
        or token.count(".") != 2
        or not token.isascii()
        or not token.isprintable()
        or " " in token
    ):
        raise BadRequest(f"{where} holds no token of peacefs: one is a line of three parts, with dots in between")
    return token
