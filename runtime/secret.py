"""The cluster secret: a file with a line of at least 32 characters, known to all services but not to clients.

While a secret is being replaced, the file has several lines. The first one signs; all are accepted.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import stat
from pathlib import Path
from secrets import token_urlsafe

from peacefs.protocol.errors import StartupError
from peacefs.protocol.tokens import Signer

log = logging.getLogger("peacefs.secret")

_CHARACTERS_MIN = 32
SECRET_FILE_VARIABLE = "PEACEFS_SECRET_FILE"


def is_loopback(host: str) -> bool:
    """Return whether an address to bind is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_secret_file(given: Path | None) -> Path | None:
    """Return the file named by the option, or else by the environment."""
    named = os.environ.get(SECRET_FILE_VARIABLE)
    return given or (Path(named) if named else None)


def require_secret_for(host: str, secret_file: Path | None) -> None:
    """Check that a service reachable from other machines has a secret file. Raises StartupError."""
    if secret_file is None and not is_loopback(host):
        raise StartupError(
            f"{host} is reachable from other machines: that needs a cluster secret that all services share. "
            f"Make one (`umask 077; head -c 32 /dev/urandom | base64 > cluster.secret`) and pass --secret-file"
        )


def read_secrets(path: Path) -> list[bytes]:
    """Read the secrets, at least one, without surrounding whitespace. Raises StartupError.

    A file that every user can read causes only a warning, because containers may need that and have no other
    users.
    """
    try:
        secrets = [line.strip() for line in path.read_bytes().splitlines() if line.strip()]
        mode = path.stat().st_mode
    except OSError as error:
        raise StartupError(f"cannot read the cluster secret {path}: {error.strerror}") from None
    if min(map(len, secrets), default=0) < _CHARACTERS_MIN:
        raise StartupError(f"the cluster secret in {path} is shorter than {_CHARACTERS_MIN} characters")
    if mode & stat.S_IROTH:
        log.warning(
            "every user of this machine can read the cluster secret %s and act as a service: run chmod 600 as"
            " its owner",
            path,
        )
    return secrets


def read_again(signer: Signer, path: Path) -> None:
    """Reload the secrets of a file into the signer; keep the old ones if the file is invalid."""
    try:
        secrets = read_secrets(path)
    except StartupError as mistake:
        log.error("%s: the former secrets stay in use", mistake.message)
        return
    signer.replace(*secrets)
    names = ", ".join(secret.name.hex() for secret in signer.handshake_secrets)
    log.info("the cluster secret was reloaded: signing with the first line, accepting all of %s", names)


def read_or_make_secrets(path: Path) -> list[bytes]:
    """Read the secrets; first create the file with a random secret if it does not exist.

    Must not run in two processes at once. Raises StartupError.
    """
    if not path.exists():
        try:
            _make_secret(path)
        except OSError as error:
            raise StartupError(f"cannot make the cluster secret {path}: {error.strerror}") from None
    return read_secrets(path)


def _make_secret(path: Path) -> None:
    """Write a new secret atomically: a partial one would be rejected at every later start."""
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token_urlsafe(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
