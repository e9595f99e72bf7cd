"""Generate an auth log from a seed, for tests and if no real log is at hand.

It contains what makes real logs hard: two styles of stamp, late lines, IPv6, host names instead of addresses,
repeated messages, deceptive user names, lines of other programs, and garbage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from random import Random

from .auth_log import MONTHS

LATE_SECONDS_MAX = 90.0
_LATE_FRACTION = 0.05
_LINES_PER_SECOND = 0.15
_GARBAGE_FRACTION = 0.01
_REPEATED_FRACTION = 0.03

_USERS = ("root", "admin", "oracle", "git", "test", "0", "", " 0101", "x from 192.0.2.99 port 1 ssh2", "weiß")
_METHODS = ("password", "password", "password", "none", "publickey", "keyboard-interactive/pam")
_GARBAGE = (
    "",
    "\x00\x00\x00\x00",
    "Dec",
    "Feb 31 12:00:00 gate sshd[9]: Failed password for root from 192.0.2.1 port 1 ssh2",
    "Mar 01 24:61:00 gate sshd[9]: Failed password for root from 192.0.2.1 port 1 ssh2",
    "2024-02-30T12:00:00Z gate sshd[9]: Failed password for root from 192.0.2.1 port 1 ssh2",
    "Failed password for root from 192.0.2.1 port 22 ssh2",
    "-- the disk was full here --",
)

DEFAULT_START = datetime(2024, 12, 31, 21, 0, 0, tzinfo=UTC)


def generate_log(seed: int, lines: int, start: datetime = DEFAULT_START) -> list[str]:
    """Return `lines` lines in order of arrival, from `start`; the default start is shortly before New Year.

    No line arrives more than LATE_SECONDS_MAX after its instant.
    """
    rng = Random(seed)
    attackers = [_address(rng) for _ in range(24)]
    at = start
    arrivals: list[tuple[datetime, int, str]] = []
    for number in range(lines):
        at += timedelta(seconds=rng.expovariate(_LINES_PER_SECOND))
        late = rng.uniform(1, LATE_SECONDS_MAX) if rng.random() < _LATE_FRACTION else 0.0
        # A few attackers make most of the attempts.
        attacker = attackers[min(int(rng.expovariate(0.25)), len(attackers) - 1)]
        arrivals.append((at + timedelta(seconds=late), number, _line(rng, at, attacker)))
    return [line for _, _, line in sorted(arrivals)]


def _line(rng: Random, at: datetime, attacker: str) -> str:
    if rng.random() < _GARBAGE_FRACTION:
        return rng.choice(_GARBAGE)
    stamp, host, program = rng.choice(_STYLES)
    message = _message(rng, attacker) if rng.random() < 0.55 else _other_news(rng, attacker)
    if message is None:
        return f"{stamp(at)} {host} CRON[{rng.randrange(9999)}]: (root) CMD (run-parts /etc/cron.hourly)"
    return f"{stamp(at)} {host} {program}[{rng.randrange(1000, 60000)}]: {message}"


def _message(rng: Random, attacker: str) -> str:
    user = rng.choice(_USERS)
    known = "" if user == "root" else "invalid user "
    method = rng.choice(_METHODS)
    key = ": RSA SHA256:9Vqk0vYlrPw" if method == "publickey" else ""
    failed = f"Failed {method} for {known}{user} from {attacker} port {rng.randrange(1024, 65536)} ssh2{key}"
    if rng.random() < _REPEATED_FRACTION:
        return f"message repeated {rng.randrange(2, 7)} times: [ {failed}]"
    return failed


def _other_news(rng: Random, attacker: str) -> str | None:
    news: Sequence[str | None] = (
        f"Invalid user admin from {attacker}",
        f"Accepted password for ada from {attacker} port 50022 ssh2",
        f"Connection closed by {attacker} [preauth]",
        f"pam_unix(sshd:auth): authentication failure; logname= uid=0 euid=0 tty=ssh ruser= rhost={attacker}",
        "error: Received disconnect: Failed password for nobody",
        None,
    )
    return rng.choice(news)


def _address(rng: Random) -> str:
    kind = rng.random()
    if kind < 0.7:
        return f"198.51.{rng.randrange(100, 104)}.{rng.randrange(1, 255)}"
    if kind < 0.9:
        return f"2001:db8::{rng.randrange(1, 0xFFFF):x}"
    return f"host-{rng.randrange(100)}.example.net"


def _traditional(at: datetime) -> str:
    return f"{MONTHS[at.month - 1]} {at.day:2} {at:%H:%M:%S}"


def _rfc3339(at: datetime) -> str:
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _rfc3339_eastern(at: datetime) -> str:
    return (at + timedelta(hours=2)).isoformat(timespec="seconds").replace("+00:00", "+02:00")


_STYLES: tuple[tuple[Callable[[datetime], str], str, str], ...] = (
    (_traditional, "gate", "sshd"),
    (_traditional, "gate", "sshd"),
    (_rfc3339, "db1", "sshd-session"),
    (_rfc3339_eastern, "db2", "sshd"),
)
