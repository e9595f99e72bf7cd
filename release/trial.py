"""Try a wheel as a user would: install it into a new environment, start a cluster, write a file, stop."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import sysconfig
import time
import venv
from pathlib import Path

from .changelog import ReleaseFault

#: Longer than any of it takes on a busy machine.
_STEP_TIMEOUT_S = 600.0
_LOOK_S = 0.1
_TEXT = "all replicas are well\n"


class Trial:
    """An environment with the wheel in it, and with dependencies.

    Dependencies are the locked ones, from pip's configured index. With `dependencies_from_here` they are those of
    this interpreter, without a network and without its peacefs.
    """

    def __init__(self, directory: Path, *, dependencies_from_here: bool) -> None:
        self._directory = directory
        self._environment = directory / "venv"
        self._dependencies_from_here = dependencies_from_here

    @property
    def program(self) -> Path:
        """The command that the wheel installs."""
        return self._environment / "bin" / "peacefs"

    def install(self, wheel: Path, root: Path) -> None:
        """Install a wheel. Raises ReleaseFault."""
        venv.create(self._environment, with_pip=not self._dependencies_from_here)
        if not self._dependencies_from_here:
            locks = [str(root / "locks" / name) for name in ("build.lock", "services.lock")]
            for lock in locks:
                self._pip("--require-hashes", "--no-build-isolation", "-r", lock)
            self._pip("--no-deps", "--no-index", str(wheel))
            return
        packages = Path(sysconfig.get_path("purelib", vars={"base": str(self._environment)}))
        self._run(
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"),
            *("--python", str(self._environment / "bin" / "python"), "install"),
            *("--no-deps", "--no-index", str(wheel)),
        )
        # Paths that stand in such a file are searched last, and files of that kind in them are not heeded.
        theirs = [path for path in sys.path if path.endswith("site-packages")]
        (packages / "dependencies.pth").write_text("".join(f"{path}\n" for path in theirs))

    def check_version(self, version: str) -> None:
        """Check that the command has the release's version, and that its packages come from the wheel."""
        said = self._run(str(self.program), "--version").strip()
        if said != f"peacefs {version}":
            raise ReleaseFault(f"the wheel's `peacefs --version` says {said!r}, not {version}")
        python = str(self._environment / "bin" / "python")
        where = self._run(python, "-P", "-c", "import peacefs.client; print(peacefs.client.__file__)").strip()
        if not where.startswith(str(self._environment)):
            raise ReleaseFault(f"the wheel was to be tried, and {where} was")

    def check_cluster(self) -> None:
        """Start a cluster, put a file, get it back, and stop it: all of it ends well, and leaves no process."""
        log = self._directory / "up.log"
        with log.open("wb") as output:
            up = subprocess.Popen(
                [self.program, "up", "--dir", str(self._directory / "cluster"), "--port", "0", "--datanodes", "1"],
                **{"stdout": output, "stderr": output, "cwd": self._directory, "env": self._variables()},  # type: ignore[call-overload]
            )
        try:
            url = self._address(up, log)
            local, back = self._directory / "note", self._directory / "back"
            local.write_text(_TEXT)
            for words in (("put", str(local), "/note"), ("get", "/note", str(back)), ("report",)):
                self._run(str(self.program), *words, PEACEFS_URL=url)
            if back.read_text() != _TEXT:
                raise ReleaseFault("a file came back from the cluster as another than was put")
            up.send_signal(signal.SIGINT)
            status = up.wait(_STEP_TIMEOUT_S)
            if status:
                raise ReleaseFault(f"`peacefs up` ended with status {status}: {log.read_text()[-500:]}")
        finally:
            if up.poll() is None:
                up.kill()
                up.wait()

    def _address(self, up: subprocess.Popen[bytes], log: Path) -> str:
        until_s = time.monotonic() + _STEP_TIMEOUT_S
        while time.monotonic() < until_s and up.poll() is None:
            found = re.search(r"webhdfs://([0-9.]+:\d+)", log.read_text())
            if found is not None:
                return f"http://{found[1]}"
            time.sleep(_LOOK_S)
        raise ReleaseFault(f"`peacefs up` did not come up: {log.read_text()[-500:]}")

    def _pip(self, *words: str) -> None:
        python = str(self._environment / "bin" / "python")
        self._run(python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install", *words)

    def _run(self, *command: str, **variables: str) -> str:
        done = subprocess.run(
            command,
            cwd=self._directory,
            env={**self._variables(), **variables},
            capture_output=True,
            text=True,
            timeout=_STEP_TIMEOUT_S,
        )
        if done.returncode:
            raise ReleaseFault(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()}")
        return done.stdout

    def _variables(self) -> dict[str, str]:
        """Return the environment without what could lead to another peacefs, or another cluster."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("PEACEFS_", "PYTHON"))}
        return {**own, "HOME": str(self._directory), "XDG_CONFIG_HOME": str(self._directory / "config")}
