"""Choose the demo's log: the named one, else a real one beside the project, else a generated one."""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from peacefs.protocol.errors import PeacefsError, StartupError

from .log_generator import generate_log
from .log_measure import LogMeasure, assume_years, measure
from .staging import read_lines

#: A part of loghub (https://github.com/logpai/loghub), if it was downloaded beside the checkout.
REAL_LOG = Path(__file__).resolve().parents[2] / "../shared/data/loghub/OpenSSH_2k.log"
_GENERATED_LINES = 2000
_GENERATED_SEED = 1


@dataclass(frozen=True, slots=True)
class DemoInput:
    """Logs in order of arrival, measured as one log. `description` names them in the report."""

    logs: tuple[Path, ...]
    measured: LogMeasure
    description: str


def choose_input(named: Path | None, directory: Path) -> DemoInput:
    """Choose the log. A generated one goes into `directory`. Raises StartupError if the log is unusable."""
    if named is not None:
        return _examined(named, str(named))
    if REAL_LOG.is_file():
        return _examined(REAL_LOG, f"{REAL_LOG.name}, a real log of loghub's")
    generated = directory / "generated.log"
    generated.write_text("".join(f"{line}\n" for line in generate_log(_GENERATED_SEED, _GENERATED_LINES)), "utf-8")
    return _examined(generated, f"a log made up under seed {_GENERATED_SEED}: no real one is here")


def _examined(path: Path, description: str) -> DemoInput:
    try:
        logs = _logs(path)
        written = datetime.fromtimestamp(max((log.stat().st_mtime for log in logs), default=0), UTC).date()
        measured = measure(read_lines(logs), assume_years(read_lines(logs), written))
    except (OSError, EOFError, zlib.error) as error:
        raise StartupError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    except PeacefsError as error:
        raise StartupError(f"{path}: {error.message}") from None
    if measured.failures == 0:
        raise StartupError(f"{path} reports no failed log-in of sshd: there is nothing to count")
    return DemoInput(logs, measured, description)


def _logs(path: Path) -> tuple[Path, ...]:
    """Return the file, or the files of a directory, last written last, as log rotation leaves them."""
    if not path.is_dir():
        return (path,)
    files = [entry for entry in path.iterdir() if entry.is_file() and not entry.name.startswith(".")]
    return tuple(sorted(files, key=lambda file: (file.stat().st_mtime, file.name)))
