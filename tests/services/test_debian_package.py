"""The Debian package on a host with systemd: installed, upgraded, removed and purged by dpkg without data loss.

By default its dependencies are those of this interpreter, and the host is like this machine. With PEACEFS_LONG=1
they are the locked ones, and debootstrap makes a host with only the package's dependencies.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.long_runs import IS_LONG
from support.machines import Machines, require_machines
from support.pages import Page

from peacefs import __version__
from release.debian import build_deb

pytestmark = pytest.mark.cluster

_ROOT = Path(__file__).parents[2]
_NEXT = f"{__version__}+next"
_DEBIAN_TIMEOUT_S = 900


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_machines()
    if shutil.which("dpkg-deb") is None:
        pytest.skip("dpkg-deb is not here: a Debian package is built on Debian")
    return build_deb(_ROOT, tmp_path_factory.mktemp("deb"), dependencies_from_here=not IS_LONG)


@pytest.fixture(scope="module")
def newer(package: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the same package with a higher version, and other text in one configuration file."""
    directory = tmp_path_factory.mktemp("newer")
    unpacked, built = directory / "tree", directory / "peacefs-next.deb"
    subprocess.run(["dpkg-deb", "--raw-extract", package, unpacked], check=True)
    control = unpacked / "DEBIAN" / "control"
    control.write_text(control.read_text().replace(f"Version: {__version__}\n", f"Version: {_NEXT}\n"))
    options = unpacked / "etc" / "peacefs" / "coordinator.env"
    options.write_text(options.read_text() + "#PEACEFS_NEW_OPTION=\n")
    subprocess.run(["dpkg-deb", "--root-owner-group", "-Znone", "--build", unpacked, built], check=True)
    return built


@pytest.fixture(scope="module")
def host(package: Path, newer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    lower = Path("/")
    if IS_LONG:
        if shutil.which("debootstrap") is None:
            pytest.skip("debootstrap is not here: on Debian `apt-get install debootstrap`")
        lower = tmp_path_factory.mktemp("debian") / "tree"
        included = "--include=systemd,systemd-sysv,python3"
        # The package is built for the Python of this machine's Debian.
        release = platform.freedesktop_os_release()["VERSION_CODENAME"]
        subprocess.run(
            ["debootstrap", "--variant=minbase", included, release, lower],
            check=True,
            timeout=_DEBIAN_TIMEOUT_S,
            capture_output=True,
        )
    with Machines(tmp_path_factory.mktemp("host"), {"node1": "10.0.0.1"}, "10.0.0.200", lower) as machines:
        (machines.desk_directory / "dist").mkdir()
        (machines.desk_directory / "dist" / package.name).symlink_to(package)
        machines.run(f"scp {newer} root@node1:/root/next.deb")
        yield machines


def active(host: Machines, *units: str) -> list[str]:
    return host.on("node1", f"systemctl is-active {' '.join(units)}", check=False).split()


def test_package_is_installed_and_starts_nothing_before_it_is_configured(host: Machines) -> None:
    page = Page(_ROOT / "docs" / "install.md").text.partition("\n## The Debian package\n")[2]
    make, install = re.findall(r"^```\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)[:2]
    assert make == "make deb\n" and install.startswith("for host in $hosts; do\n")
    host.run(f"hosts=node1\n{install}")
    assert host.on("node1", "peacefs --version").strip() == f"peacefs {__version__}"
    assert host.on("node1", "id -gn peacefs; stat -c '%A %U %G' /etc/peacefs").split() == [
        *("peacefs", "drwxr-x---", "root", "peacefs")
    ]
    units = ["peacefs-coordinator", "peacefs-datanode", "peacefs-agent"]
    assert active(host, *units) == ["inactive"] * 3
    assert host.on("node1", f"systemctl is-enabled {' '.join(units)}", check=False).split() == ["disabled"] * 3
    # Installed files equal the package's contents, and contain no path of the build.
    assert host.on("node1", "dpkg --verify peacefs") == ""
    assert host.on("node1", "grep -rlE 'tmp[a-z0-9_]{8}/stage' /usr/lib/peacefs || true") == ""


def test_package_runs_a_cluster_of_one_host(host: Machines) -> None:
    host.on(
        "node1",
        "umask 027; head -c 32 /dev/urandom | base64 > /etc/peacefs/cluster.secret\n"
        "chgrp peacefs /etc/peacefs/cluster.secret\n"
        "sed -i 's/^PEACEFS_OPTIONS=.*/PEACEFS_OPTIONS=--trash-minutes 60/' /etc/peacefs/coordinator.env\n"
        "printf '[commands.true]\nprogram = \"/bin/true\"\n' > /etc/peacefs/commands.toml\n"
        "systemctl enable --now peacefs-coordinator peacefs-datanode peacefs-agent\n"
        "PEACEFS_URL=unix:/var/lib/peacefs/coordinator peacefs prepare root\n"
        "echo kept > /root/kept; peacefs put /root/kept /user/root/kept; peacefs cat /user/root/kept",
    )
    assert active(host, "peacefs-coordinator", "peacefs-datanode", "peacefs-agent") == ["active"] * 3
    assert "root" not in host.on("node1", "ps -o user= -p $(systemctl show -P MainPID peacefs-coordinator)")


@pytest.mark.long("installs again")
def test_package_is_upgraded_with_its_configuration_and_what_runs_is_restarted(host: Machines) -> None:
    def pids() -> list[str]:
        return host.on("node1", "systemctl show -P MainPID peacefs-coordinator peacefs-datanode").split()

    before = pids()
    host.on(
        "node1", "dpkg --force-confold -i /root/next.deb && systemctl start peacefs-coordinator peacefs-datanode"
    )
    assert not set(before) & set(pids())
    assert _NEXT in host.on("node1", "dpkg-query -W peacefs")
    assert "--trash-minutes 60" in host.on("node1", "cat /etc/peacefs/coordinator.env")
    assert "PEACEFS_NEW_OPTION" in host.on("node1", "cat /etc/peacefs/coordinator.env.dpkg-dist")
    assert host.on("node1", "peacefs cat /user/root/kept") == "kept\n"


@pytest.mark.long("installs again")
def test_package_is_removed_and_purged_and_what_was_stored_stays(host: Machines) -> None:
    host.on("node1", "dpkg --remove peacefs")
    assert host.on("node1", "pgrep -u peacefs || true") == ""
    assert host.on("node1", "ls -d /usr/lib/peacefs /usr/bin/peacefs 2>/dev/null || true") == ""
    assert "cluster.secret" in host.on("node1", "ls /etc/peacefs")
    said = host.on("node1", "dpkg --purge peacefs")
    assert "rm -rf /var/lib/peacefs" in said
    assert host.on("node1", "ls -d /etc/peacefs 2>/dev/null || true") == ""
    assert host.on("node1", "ls /var/lib/peacefs").split() == ["coordinator", "datanode"]
    # A reinstalled package serves the stored data, with the same secret or a new one.
    host.on("node1", "dpkg -i /root/peacefs.deb; head -c 32 /dev/urandom | base64 > /etc/peacefs/cluster.secret")
    host.on("node1", "chgrp peacefs /etc/peacefs/cluster.secret; chmod 640 /etc/peacefs/cluster.secret")
    host.on("node1", "systemctl start peacefs-coordinator peacefs-datanode")
    assert host.on("node1", "peacefs cat /user/root/kept") == "kept\n"
