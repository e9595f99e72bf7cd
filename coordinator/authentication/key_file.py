"""The private half of the signing key, in a file that only its owner can read, and that no metadata backup has.

If the file is lost, the coordinator makes a new key. Tokens signed with the old key stay valid, because its public
half is in the metadata.
"""

from __future__ import annotations

import os
from pathlib import Path

from peacefs.protocol.callers.bearer import SigningKey
from peacefs.protocol.errors import StartupError

NAME = "token-signing.key"


class KeyFile:
    """The key file of one coordinator, in its directory."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / NAME

    def read(self) -> SigningKey | None:
        """Return the key; None if there is no file yet. Raises StartupError if the file cannot be used."""
        try:
            mode = self._path.stat().st_mode
            pem = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StartupError(f"cannot read {self._path}: {error.strerror}") from None
        if mode & 0o077:
            raise StartupError(
                f"others than its owner may read {self._path}, and make tokens for anybody: delete it, so that "
                "another key is made, or, if nobody has read it, chmod 600"
            )
        try:
            return SigningKey.from_pem(pem)
        except ValueError as error:
            raise StartupError(
                f"{self._path} holds no key ({error}): delete it, and a new key is made; existing tokens stay "
                "valid"
            ) from None

    def write(self, key: SigningKey) -> None:
        """Replace the key, atomically and durably. Raises OSError."""
        staged = self._path.with_name(NAME + ".new")
        staged.unlink(missing_ok=True)
        with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(key.pem())
            file.flush()
            os.fsync(file.fileno())
        staged.rename(self._path)
        directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(directory)
        finally:
            os.close(directory)
