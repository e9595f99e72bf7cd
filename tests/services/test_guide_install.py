"""The guide to installing: each command of docs/install.md runs on hosts with systemd of their own.

By default this interpreter's packages replace those that pip would fetch and install on each host. With
PEACEFS_LONG=1 pip fetches them, and the package is what `make deb` builds.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.etcd import etcd_binary
from support.long_runs import IS_LONG
from support.machines import PACKAGES, PYTHON, Machines, require_machines
from support.pages import ROOT, Page
from support.waiting import wait_until

from release.packages import build_wheel

pytestmark = pytest.mark.cluster

_PAGE = Page(ROOT / "docs" / "install.md")
_MOUNT_PAGE = Page(ROOT / "docs" / "mount.md")
_SECTION = re.compile(r"^##+ (.+?)\n(.*?)(?=^##+ |\Z)", re.DOTALL | re.MULTILINE)
_BLOCK = re.compile(r"^```\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_SETS = re.compile(r"(export )?\w+=.*\n")
_BASE: str = vars(sys)["_base_executable"]
#: Replaces python3 if nothing is fetched: an environment has a pip that installs our wheel, and a path to the
#: tests' packages for the locked ones.
_PYTHON3 = f"""#!/bin/bash
set -e
python={PYTHON}/bin/python3
[ -x $python ] || python={_BASE}
packages={PACKAGES}
[ -d $packages ] || packages={sysconfig.get_path("purelib")}
case "$1 $2 $3" in
"-m pip download") exit 0 ;;
"-m venv "*) $python -m venv --without-pip "$3" ;;
*) exec $python "$@" ;;
esac
site=$($3/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cat > "$3/bin/pip" <<END
#!/bin/bash
set -e
for last; do true; done
case \\$last in
*.lock) [[ "\\$*" == *--require-hashes* && -f \\$last ]] && echo $packages > $site/dependencies.pth ;;
*.whl)
    rm -rf $site/peacefs*
    $python -m zipfile -e \\$last $site
    printf '%s\\\\n' '#!$3/bin/python' 'from peacefs.start import main' 'main()' > $3/bin/peacefs
    chmod 755 $3/bin/peacefs ;;
*) exit 2 ;;
esac
END
chmod 755 "$3/bin/pip"
"""


def blocks() -> dict[str, list[str]]:
    """Return the code blocks by section."""
    found = {title: _BLOCK.findall(body) for title, body in _SECTION.findall(_PAGE.text)}
    return {title: each for title, each in found.items() if each}


class Site:
    """Hosts and desk of the page. Variables set in a block keep their values in later blocks."""

    def __init__(self, machines: Machines) -> None:
        self.machines = machines
        self.ran: set[str] = set()
        self.variables = ""

    def run(self, section: str, count: int | None = None) -> str:
        """Run a section's blocks, or the first `count` of them, and return the output."""
        said = ""
        for block in blocks()[section][:count]:
            if re.fullmatch(f"({_SETS.pattern})+", block):
                self.variables += block
            else:
                said += self.run_lines(block)
        self.ran.add(section)
        return said

    def run_lines(self, text: str, check: bool = True) -> str:
        return self.machines.run(self.variables + text, check=check)

    def administer(self, words: str) -> str:
        return self.run_lines(f"ssh root@node1 peacefs --directory /var/lib/peacefs/coordinator {words}\n")

    def reaches(self, name: str, port: int, since: str = "") -> bool:
        """Return whether a connection from the desk, or from a machine, is accepted."""
        probe = f"timeout 1 bash -c '</dev/tcp/{name}/{port}'"
        line = f'ssh root@{since} "{probe}"' if since else probe
        return "yes" in self.run_lines(f"{line} 2>/dev/null && echo yes || echo no\n")


def compiled(wheel: Path, directory: Path) -> None:
    """Add to the wheel what pip would compile on each host, as far as services need it."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)
    services = "import peacefs.command, peacefs.coordinator.service, peacefs.datanode.service"
    environment = {"PYTHONPATH": str(directory), "PYTHONPYCACHEPREFIX": "", "PATH": os.environ["PATH"]}
    subprocess.run([sys.executable, "-P", "-c", services], cwd=directory, env=environment, check=True)
    with zipfile.ZipFile(wheel, "a") as archive:
        for path in directory.rglob("*.pyc"):
            code = path.read_bytes()
            # Make the compiled file valid whatever the time of its source.
            archive.writestr(str(path.relative_to(directory)), code[:4] + b"\1\0\0\0" + bytes(8) + code[16:])


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_machines()
    target = tmp_path_factory.mktemp("dist")
    built = build_wheel(ROOT, target)
    (target / "compiled").mkdir()
    compiled(Path(shutil.copy(built, target / "compiled")), tmp_path_factory.mktemp("code"))
    return built


#: Debian's etcd package, as far as the page uses it: the program, its user and its unit.
_ETCD = """#!/bin/bash
set -e
[ "$*" = "install --yes --quiet etcd-server" ]
install -m 0755 {binary} /usr/bin/etcd
useradd --system --home-dir /var/lib/etcd --shell /usr/sbin/nologin etcd
install -d -m 0700 -o etcd -g etcd /var/lib/etcd
cat > /etc/systemd/system/etcd.service <<'END'
[Service]
Type=notify
User=etcd
EnvironmentFile=-/etc/default/etcd
ExecStart=/usr/bin/etcd
Restart=on-abnormal
[Install]
WantedBy=multi-user.target
END
systemctl daemon-reload
"""


@contextmanager
def hosts(directory: Path, wheel: Path, count: int, *, with_pip: bool = False) -> Iterator[Site]:
    """Yield hosts. pip installs packages only with PEACEFS_LONG. The hosts cannot reach the index."""
    addresses = {f"node{number}": f"10.0.0.{number}" for number in range(1, count + 1)}
    with Machines(directory, addresses, "10.0.0.200") as machines:
        desk = machines.desk_directory
        for name in ("locks", "README.md"):
            (desk / name).symlink_to(ROOT / name)
        # Copied, since the stand-in for scp copies a link as a link, to a place that hosts may not have.
        shutil.copytree(ROOT / "deploy", desk / "deploy")
        (desk / "dist").mkdir()
        shutil.copy(wheel if with_pip else wheel.parent / "compiled" / wheel.name, desk / "dist")
        machines.add_program("make", '#!/bin/sh\n[ "$*" = wheel ]\n')
        if with_pip:
            (download,) = (line for line in _PAGE.text.splitlines() if line.startswith("python3 -m pip download"))
            subprocess.run(download.replace("python3", _BASE), shell=True, cwd=desk, check=True)
        fetched = f'#!/bin/sh\n[ "$3" = download ] || exec {_BASE} "$@"\n'
        machines.add_program("python3", fetched if with_pip else _PYTHON3)
        yield Site(machines)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Iterator[Site]:
    if shutil.which("nft") is None:
        pytest.skip("nft is not here: on Debian `apt-get install nftables`")
    with hosts(tmp_path_factory.mktemp("hosts"), wheel, 3, with_pip=IS_LONG) as site:
        yield site


def test_operator_installs_three_hosts_line_by_line(site: Site) -> None:
    site.run("Three hosts")
    site.run("Install the program")
    site.run("Make the secret and the certificates")
    # Only root and the services can read the secret.
    assert "-rw-r----- root peacefs" in site.machines.on(
        "node2", "stat -c '%A %U %G' /etc/peacefs/cluster.secret /etc/peacefs/key.pem"
    )
    site.run("Write the options")
    said = site.run("Start and check")
    assert "HEALTHY" in said and site.run_lines("peacefs stat /user/alice/README.md --json").count(
        '"replication":3'
    )


def test_firewall_lets_the_cluster_and_clients_in_and_nobody_else(site: Site) -> None:
    assert site.reaches("node1", 9820) and site.reaches("node2", 9864)
    site.run("Close the ports")
    assert not site.reaches("node1", 9820) and site.reaches("node1", 9820, since="node3")
    assert site.reaches("node1", 9870) and site.reaches("node2", 9864) and site.reaches("node2", 9866)
    site.run_lines(
        "peacefs put -f README.md /user/alice/again && peacefs cat /user/alice/again | cmp - README.md\n"
    )


def test_host_mounts_the_cluster_by_hand_by_fstab_and_by_a_unit(site: Site) -> None:
    if not Path("/dev/fuse").exists() or shutil.which("fusermount3") is None:
        pytest.skip("/dev/fuse or libfuse 3 is not here: on Debian `apt-get install fuse3`")
    (at_boot,) = (body for title, body in _SECTION.findall(_MOUNT_PAGE.text) if title == "At boot")
    helper, by_hand, by_fstab, by_unit = _BLOCK.findall(at_boot)
    site.run_lines("scp -q -r deploy alice.token root@node2:/root && scp -q alice.token root@node2:/etc/peacefs\n")

    def host(text: str, check: bool = True) -> str:
        return site.machines.on("node2", f"place=/mnt/peace/user/alice\n{text}", check)

    host(helper + by_hand.replace("umount", "date > $place/by-hand\numount"))
    assert "by-hand" in site.run_lines("peacefs ls /user/alice\n")
    host(f"{by_fstab}echo fstab > $place/by-fstab; umount /mnt/peace; sed -i /peacefs/d /etc/fstab")
    host(f"systemctl daemon-reload; cp deploy/systemd/mnt-peace.mount .\n{by_unit}")
    assert host("cat $place/by-fstab") == "fstab\n"
    # A mount that died is replaced.
    host("kill -9 $(pgrep -f 'peacefs mount')")
    assert "not connected" in host("cat $place/by-fstab 2>&1", check=False)
    host("systemctl restart mnt-peace.mount")
    assert host("cat $place/by-fstab") == "fstab\n"
    host("systemctl disable --now mnt-peace.mount")
    assert host("pgrep -f 'peacefs mount' || true") == ""


def test_agent_runs_queries_of_a_user_under_that_account_and_nothing_else_of_the_host(site: Site) -> None:
    assert "node2" in site.run("Add an agent")
    line = "id -un > who; cat /etc/peacefs/cluster.secret > secret; touch /usr/x /var/lib/peacefs/x; sleep 600"
    listed = (
        f'[commands.who]\nprogram = "/bin/sh"\narguments = ["-c", "{line}", "{{checkpoint}}"]\nusers = ["alice"]\n'
    )
    site.machines.on(
        "node3", f"cat >> /etc/peacefs/commands.toml <<'END'\n{listed}END\nsystemctl restart peacefs-agent"
    )
    site.run_lines("peacefs supervise --checkpoint /checkpoints/who -- who\n")
    work = "/var/lib/peacefs-agent/work/alice"
    wait_until(lambda: "sleep" in site.machines.on("node3", "ps -u alice -o comm=", check=False), "the query runs")
    assert site.machines.on("node3", f"cat {work}/who").split() == ["alice"]
    assert (
        site.machines.on("node3", f"stat -c %s {work}/secret; ls /usr/x /var/lib/peacefs/x 2>&1", check=False)[0]
        == "0"
    )
    # Accounts get through the agent's directory, as they have to: that is no fault.
    assert "were open to other users" not in site.machines.on("node3", "journalctl -u peacefs-agent")
    # The queries of an agent end with it.
    site.machines.on("node3", "systemctl stop peacefs-agent")
    assert not site.machines.on("node3", "ps -u alice -o comm=", check=False)


@pytest.mark.long("installs twice")
def test_operator_upgrades_and_removes_line_by_line(site: Site) -> None:
    began = site.machines.on("node2", "systemctl show -P ExecMainStartTimestampMonotonic peacefs-datanode")
    assert site.run("Upgrade").count("Datanodes: 3 alive") == 3
    assert site.machines.on("node2", "systemctl show -P ExecMainStartTimestampMonotonic peacefs-datanode") != began
    site.run_lines("peacefs cat /user/alice/again | cmp - README.md\n")
    site.run("Remove")
    places = "/opt /etc/systemd /etc/peacefs /usr/local/bin /var/lib"
    left = site.machines.on("node3", f"find {places} -name '*peacefs*' 2>/dev/null || true")
    assert left + site.machines.on("node3", "getent passwd peacefs || true") == ""
    assert set(blocks()) - {"Ten hosts", "The Debian package"} <= site.ran


@pytest.mark.long("ten hosts take minutes")
def test_operator_installs_ten_hosts_line_by_line_and_one_of_them_may_be_lost(tmp_path: Path, wheel: Path) -> None:
    binary = etcd_binary()
    with hosts(tmp_path, wheel, 10) as site:
        site.machines.add_program("apt-get", _ETCD.format(binary=binary))
        ten = blocks()["Ten hosts"]
        site.variables = ten[0]
        site.run("Install the program")
        site.run("Make the secret and the certificates")
        site.run("Write the options", 1)
        said = site.run("Ten hosts")
        assert "Datanodes: 10 alive" in said and "Standby" in said, said
        site.machines.stop("node1")
        site.run_lines("peacefs cat /user/alice/README.md | cmp - README.md\n")
        site.run_lines("peacefs put README.md /user/alice/after\n")
