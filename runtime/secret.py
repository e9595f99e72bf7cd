"""The cluster secret: a file with a line of at least 32 characters that every service has, and no client.

While a secret is replaced the file has several lines: the first is signed with, all are accepted.
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
    """Return whether an address to bind is reachable from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def find_secret_file(given: Path | None) -> Path | None:
    """The file named by the option, else by the environment."""
    named = os.environ.get(SECRET_FILE_VARIABLE)
    return given or (Path(named) if named else None)


def require_secret_for(host: str, secret_file: Path | None) -> None:
    """Raises StartupError for an address beyond loopback without a secret that was handed out on purpose."""
    if secret_file is None and not is_loopback(host):
        raise StartupError(
            f"{host} is reachable from other machines: that needs a cluster secret that all services share. "
            f"Make one (`umask 077; head -c 32 /dev/urandom | base64 > cluster.secret`) and pass --secret-file"
        )


def read_secrets(path: Path) -> list[bytes]:
    """The secrets, one at least, without surrounding white space. Raises StartupError with what is wrong.

    One that every user may read is warned of and not refused: in a container, which has no others, it may have to
    be so.
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
            "every user of this machine can read the cluster secret %s, and do what its services can. "
            "Where its owner runs them: chmod 600",
            path,
        )
    return secrets


def read_again(signer: Signer, path: Path) -> None:
    """Has the secrets of a file used from now on, in place of those that it had before."""
    try:
        secrets = read_secrets(path)
    except StartupError as mistake:
        log.error("%s: going on with the secrets of before", mistake.message)
        return
    signer.replace(*secrets)
    names = ", ".join(secret.name.hex() for secret in signer.handshake_secrets)
    log.info("the cluster secret was read again: signing with the first, accepting all of %s", names)


def read_or_make_secrets(path: Path) -> list[bytes]:
    """The secrets; one is made at random with mode 0600 when there is no file yet. For one process at a time."""
    if not path.exists():
        try:
            _make_secret(path)
        except OSError as error:
            raise StartupError(f"cannot make the cluster secret {path}: {error.strerror}") from None
    return read_secrets(path)


def _make_secret(path: Path) -> None:
    """Whole or not at all: half a secret would be refused for ever after."""
    staged = path.with_name(path.name + ".new")
    staged.unlink(missing_ok=True)
    with os.fdopen(os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(token_urlsafe(32) + "\n")
        file.flush()
        os.fsync(file.fileno())
    staged.rename(path)
