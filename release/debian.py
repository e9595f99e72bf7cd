"""Build the Debian package: an environment with the wheel and its locked dependencies, units, and configuration.

The environment is `/usr/lib/peacefs`, for Debian's own Python. Nothing is fetched when the package is installed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from . import packages
from .changelog import ReleaseFault

_PYTHON = "/usr/bin/python3"
_PREFIX = "usr/lib/peacefs"
_STEP_TIMEOUT_S = 900.0
_UNITS = ("coordinator", "datanode", "agent")
_CONFIGURATION = ("agent.env", "commands.toml", "coordinator.env", "datanode.env")
_SCRIPTS = ("postinst", "postrm", "prerm")
_GUIDES = ("install.md", "mount.md", "operating.md", "supervision.md", "failover.md", "security.md", "users.md")
_CONTROL = """Package: peacefs
Version: {version}
Architecture: {architecture}
Maintainer: the peacefs developers <peacefs@localhost>
Installed-Size: {kibibytes}
Depends: python3 (>= {python}), python3 (<< {next_python}), passwd
Recommends: fuse3
Suggests: etcd-server, default-jre-headless
Section: net
Priority: optional
Description: distributed, replicated file system for stream processors
 A coordinator knows names and where data is, datanodes store replicas, and agents
 keep streaming queries running. Clients speak WebHDFS. The services are not started
 before they are configured: see /usr/share/doc/peacefs/install.md.
"""


def build_deb(root: Path, target: Path, *, version: str = "", dependencies_from_here: bool = False) -> Path:
    """Build the package into `target`, and return its path. Raises ReleaseFault.

    Dependencies are the locked ones, from pip's configured index. With `dependencies_from_here` they are copied
    from this interpreter, without a network, and the package is not compressed.
    """
    version = version or packages.version_of(root)
    python = _python_version()
    architecture = _run("dpkg", "--print-architecture").strip()
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        stage = Path(name, "stage")
        wheel = packages.build_wheel(root, Path(name))
        _fill_environment(root, stage, wheel, python, dependencies_from_here=dependencies_from_here)
        _add_files(root, stage)
        _add_control(root, stage, version, architecture, python)
        compression = "-Znone" if dependencies_from_here else "-Zgzip"
        built = target / f"peacefs_{version}_{architecture}.deb"
        _run("dpkg-deb", "--root-owner-group", compression, "--build", str(stage), str(built))
    return built


def _python_version() -> tuple[int, int]:
    """Return the version of Debian's Python, for which the package is."""
    if not Path(_PYTHON).exists() or shutil.which("dpkg-deb") is None:
        raise ReleaseFault(f"a Debian package is built on Debian: {_PYTHON} or dpkg-deb is not here")
    said = _run(_PYTHON, "-c", "import sys; print(*sys.version_info[:2])").split()
    major, minor = int(said[0]), int(said[1])
    if (major, minor) < (3, 11):
        raise ReleaseFault(f"{_PYTHON} is Python {major}.{minor}, and peacefs needs 3.11 or newer")
    return major, minor


def _fill_environment(
    root: Path, stage: Path, wheel: Path, python: tuple[int, int], *, dependencies_from_here: bool
) -> None:
    prefix = stage / _PREFIX
    _run(_PYTHON, "-m", "venv", "--without-pip", str(prefix))
    site = prefix / "lib" / f"python{python[0]}.{python[1]}" / "site-packages"
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "--python")
    install = (*pip, str(prefix / "bin" / "python"), "install", "--no-compile")
    lock = root / "locks" / "services.lock"
    if dependencies_from_here:
        _copy_locked(lock, site, python)
    else:
        _run(*install, "--require-hashes", "--only-binary", ":all:", "-r", str(lock))
    _run(*install, "--no-deps", "--no-index", str(wheel))
    for program in (prefix / "bin").iterdir():
        if not program.name.startswith(("python", "peacefs")):
            program.unlink()
    launcher = prefix / "bin" / "peacefs"
    launcher.write_text(re.sub(r"\A#!.*", f"#!/{_PREFIX}/bin/python3", launcher.read_text()))
    (prefix / "pyvenv.cfg").write_text(
        f"home = /usr/bin\ninclude-system-site-packages = false\nversion = {python[0]}.{python[1]}\n"
    )
    for trace in site.glob("*.dist-info/direct_url.json"):
        trace.unlink()
    # Services cannot write there. Compiled files count whatever the times of their sources are.
    compiled = ("-m", "compileall", "-q", "-j", "0", "-s", str(stage), "-p", "/")
    _run(
        _PYTHON,
        *compiled,
        "--invalidation-mode",
        "unchecked-hash",
        str(site / "peacefs" if dependencies_from_here else site),
    )


def _copy_locked(lock: Path, site: Path, python: tuple[int, int]) -> None:
    """Copy the locked distributions of this interpreter, with their compiled files."""
    if sys.version_info[:2] != python:
        raise ReleaseFault(f"packages of this Python do not fit {_PYTHON}: run this with that")
    for name in re.findall(r"^([\w.-]+)==", lock.read_text(), re.MULTILINE):
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            continue  # one for other systems
        for file in found.files or ():
            source = Path(str(found.locate_file(file)))
            if ".." in file.parts or not source.is_file():
                continue
            for each in (source, *source.parent.glob(f"__pycache__/{source.stem}.*.pyc")):
                copied = site / Path(file).parent / each.relative_to(source.parent)
                copied.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(each, copied)


def _add_files(root: Path, stage: Path) -> None:
    command = stage / "usr" / "bin" / "peacefs"
    command.parent.mkdir(parents=True)
    command.symlink_to("../lib/peacefs/bin/peacefs")
    units = stage / "lib" / "systemd" / "system"
    units.mkdir(parents=True)
    for name in _UNITS:
        text = (root / "deploy" / "systemd" / f"peacefs-{name}.service").read_text()
        (units / f"peacefs-{name}.service").write_text(text.replace("/usr/local/", "/usr/"))
    helper = stage / "sbin" / "mount.peacefs"
    helper.parent.mkdir()
    shutil.copy(root / "deploy" / "mount" / "mount.peacefs", helper)
    documents = stage / "usr" / "share" / "doc" / "peacefs"
    documents.mkdir(parents=True)
    shutil.copy(root / "LICENSE", documents / "copyright")
    for name in _GUIDES:
        shutil.copy(root / "docs" / name, documents)
    configuration = stage / "etc" / "peacefs"
    configuration.mkdir(parents=True)
    for name in _CONFIGURATION:
        shutil.copy(root / "deploy" / "debian" / name, configuration)
    for path in (stage, *stage.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or os.access(path, os.X_OK) else 0o644)


def _add_control(root: Path, stage: Path, version: str, architecture: str, python: tuple[int, int]) -> None:
    files = sorted(path for path in stage.rglob("*") if path.is_file() and not path.is_symlink())
    sums = "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  {path.relative_to(stage)}\n"
        for path in files
    )
    text = _CONTROL.format(
        version=version,
        architecture=architecture,
        kibibytes=sum(path.stat().st_size for path in files) // 1024,
        python=f"{python[0]}.{python[1]}",
        next_python=f"{python[0]}.{python[1] + 1}",
    )
    control = stage / "DEBIAN"
    control.mkdir(mode=0o755)
    (control / "control").write_text(text)
    (control / "md5sums").write_text(sums)
    (control / "conffiles").write_text("".join(f"/etc/peacefs/{name}\n" for name in _CONFIGURATION))
    for name in _SCRIPTS:
        shutil.copy(root / "deploy" / "debian" / name, control)
        (control / name).chmod(0o755)


def _run(*command: str) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STEP_TIMEOUT_S)
    except FileNotFoundError:
        raise ReleaseFault(f"{command[0]} is not here: a Debian package is built on Debian") from None
    if done.returncode:
        raise ReleaseFault(f"`{' '.join(command)}` ended with status {done.returncode}: {done.stderr.strip()}")
    return done.stdout
