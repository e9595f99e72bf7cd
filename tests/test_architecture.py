"""Rules of the tree: one-way imports, one hierarchy of errors, deployment files that match the code."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest
import yaml
from setuptools import find_packages
from support import parallel
from typer.testing import CliRunner

import peacefs
from peacefs.command import application
from peacefs.coordinator.journal.address import JournalOptions, parse_journal
from peacefs.protocol import errors, limits
from peacefs.runtime.tls_variables import CA_VARIABLE, CERTIFICATE_VARIABLE, KEY_VARIABLE
from peacefs.spark_connector.supervision.command_list import read_command_list

_ROOT = Path(__file__).parent.parent
_PACKAGES = (
    "protocol",
    "runtime",
    "service",
    "topology",
    "peace",
    "coordinator",
    "datanode",
    "client",
    "state",
    "dataflow",
    "spark_connector",
)
_SOURCES = sorted(path for package in _PACKAGES for path in (_ROOT / package).rglob("*.py"))
#: The product's folders, whose constructors and functions have limited numbers of parameters.
_WITH_FEW_PARAMETERS = (*_PACKAGES, "peacefs/commands")
_CONSTRUCTOR_PARAMETERS_MAX = 8
_FUNCTION_PARAMETERS_MAX = 9


def test_imports_point_one_way() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-logo"], cwd=_ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout


def test_every_package_is_linked_into_the_distribution() -> None:
    for package in _PACKAGES:
        link = _ROOT / "peacefs" / package
        assert link.is_symlink()
        assert link.readlink() == Path("..") / package


def test_wheel_holds_every_module_of_the_tree() -> None:
    configured = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"]["find"]
    found = set(find_packages(str(_ROOT), include=configured["include"]))
    folders = {path.relative_to(_ROOT).parent for path in _SOURCES}
    assert found >= {".".join(("peacefs", *folder.parts)) for folder in folders}
    assert all((_ROOT / folder / "__init__.py").exists() for folder in folders)


def test_wheel_holds_every_file_of_the_web_page() -> None:
    configured = tomllib.loads((_ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    patterns = ["*.py", *configured["peacefs.coordinator.api.page"]]
    files = [path for path in (_ROOT / "coordinator/api/page").iterdir() if path.is_file()]
    assert len(files) > 10
    assert [path.name for path in files if not any(path.match(pattern) for pattern in patterns)] == []


def test_every_error_has_a_status_a_hadoop_class_and_survives_both_wires() -> None:
    for code, kind in errors.BY_CODE.items():
        assert kind.http_status in (400, 401, 403, 404, 414, 431, 500, 503), code
        assert re.fullmatch(r"[a-z]+(\.[a-z]+)+\.[A-Z]\w+(\$\w+)?", kind.hadoop_class), code
        error = kind("what is wrong", culprit="dn-1")
        assert type(errors.from_wire(error.code, error.message, error.culprit)) is kind
        body = errors.remote_exception(error)["RemoteException"]
        assert body["javaClassName"] == kind.hadoop_class
        assert type(errors.from_remote_exception({"RemoteException": body})) is kind


def test_the_tree_of_errors_is_drawn_in_full() -> None:
    drawn = set(re.findall(r"[├└]── (\w+)", errors.__doc__ or "")) | {"PeacefsError"}
    for name, status in re.findall(r"^ *[│ ]*(?:[├└]── )?(\w+) +(\d{3})\b", errors.__doc__ or "", re.MULTILINE):
        assert errors.BY_CODE[name].http_status == int(status), name
    defined = {name for name, kind in errors.BY_CODE.items() if kind.__module__ == errors.__name__}
    assert drawn == defined


@pytest.mark.parametrize("source", _SOURCES, ids=lambda path: str(path.relative_to(_ROOT)))
def test_a_module_says_what_it_is_for(source: Path) -> None:
    tree = ast.parse(source.read_text())
    assert ast.get_docstring(tree), "the module has no docstring"


@cache
def _numbers_of_parameters() -> list[tuple[str, str, int]]:
    """Return the file, the name and the number of parameters of each function, without `self` and `cls`."""
    found = []
    for folder in _WITH_FEW_PARAMETERS:
        for source in sorted((_ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(source.read_text())):
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    named = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
                    count = sum(each.arg not in ("self", "cls") for each in named)
                    found.append((str(source.relative_to(_ROOT)), node.name, count))
    return found


def test_no_constructor_has_more_than_eight_parameters() -> None:
    too_many = [
        f"{file}: {count}"
        for file, name, count in _numbers_of_parameters()
        if name == "__init__" and count > _CONSTRUCTOR_PARAMETERS_MAX
    ]
    assert too_many == []


def test_no_function_has_more_than_nine_parameters_but_kernels_and_options_of_commands() -> None:
    """A compiled kernel takes each array as a parameter: calls with tuples take a tenth longer."""
    too_many = [
        f"{file}: {name} has {count}"
        for file, name, count in _numbers_of_parameters()
        if count > _FUNCTION_PARAMETERS_MAX
        and not (file.startswith("peacefs/commands/") and not name.startswith("_"))
        and not file.startswith("state/kernels/")
    ]
    assert too_many == []


def test_pure_cores_have_no_clock_and_no_chance_of_their_own() -> None:
    folders = ["coordinator/cluster", "coordinator/scheduling", "peace"]
    folders += [
        f"dataflow/{folder}"
        for folder in ("core", "model", "operators", "query", "techniques", "unit_state", "window_checkpoints")
    ]
    cores = [path for folder in folders for path in (_ROOT / folder).rglob("*.py")]
    cores += [_ROOT / "coordinator/metadata/epochs.py", _ROOT / "coordinator/supervision/core.py"]
    cores += [_ROOT / "coordinator/supervision/locality.py"]
    for core in cores:
        tree = ast.parse(core.read_text())
        imported = {
            name.split(".")[0]
            for node in ast.walk(tree)
            for name in (
                [alias.name for alias in node.names]
                if isinstance(node, ast.Import)
                else [node.module or ""]
                if isinstance(node, ast.ImportFrom) and node.level == 0
                else []
            )
        }
        assert not imported & {"time", "socket", "logging", "asyncio", "threading", "os", "secrets"}, core


_COMPOSE = yaml.safe_load((_ROOT / "docker-compose.yml").read_text())
#: The services that run `peacefs`.
_OURS = sorted(name for name, each in _COMPOSE["services"].items() if "build" in each and "entrypoint" not in each)


class TestDeployment:
    compose = _COMPOSE

    @pytest.mark.parametrize("name", _OURS)
    def test_a_service_uses_commands_and_options_that_exist(self, name: str) -> None:
        words = self.compose["services"][name]["command"].split()
        shown = CliRunner().invoke(application, [words[0], "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        assert shown.exit_code == 0
        for option in (word for word in words if word.startswith("--")):
            assert option in shown.output, f"peacefs {words[0]} has no {option}"

    def test_the_first_ports_are_the_defaults_of_the_code(self) -> None:
        services = self.compose["services"]
        coordinator = services["coordinator"]["command"]
        assert f"--port {limits.coordinator_http_port_default}" in coordinator
        assert f"--node-port {limits.coordinator_node_port_default}" in coordinator
        datanode = services["datanode-1"]["command"]
        assert f"--port {limits.datanode_http_port_default}" in datanode
        assert f"--data-port {limits.datanode_data_port_default}" in datanode
        assert f"--coordinator coordinator:{limits.coordinator_node_port_default}" in datanode

    @pytest.mark.parametrize("name", _OURS)
    def test_every_port_that_clients_need_is_published_as_it_is(self, name: str) -> None:
        service = self.compose["services"][name]
        served = set(re.findall(r"--(?:data-port|port) (\d+)", service["command"]))
        published = service.get("ports", [])
        assert {port.split(":")[0] for port in published} == served
        assert all(len(set(port.split(":"))) == 1 for port in published)

    def test_everybody_but_loopback_gets_the_secret(self) -> None:
        for name in _OURS:
            service = self.compose["services"][name]
            assert "--secret-file /run/secrets/cluster" in service["command"]
            assert "--advertise" in service["command"] or service["command"].startswith("agent ")
            assert service["secrets"] == ["cluster", "certificate", "key", "ca"]

    def test_tls_files_come_from_the_one_command_that_makes_them(self) -> None:
        """The names are those of `peacefs certificates create --host $PEACEFS_HOST,coordinator`."""
        host = "${PEACEFS_HOST}"
        files = {name: secret["file"] for name, secret in self.compose["secrets"].items()}
        assert (files["certificate"], files["key"], files["ca"]) == (
            f"./certificates/{host}.pem",
            f"./certificates/{host}-key.pem",
            "./certificates/ca.pem",
        )
        for name in _OURS:
            service = self.compose["services"][name]
            environment = {key: value for key, value in service["environment"].items() if key != "HEALTH_URL"}
            assert environment == {
                CERTIFICATE_VARIABLE: "/run/secrets/certificate",
                KEY_VARIABLE: "/run/secrets/key",
                CA_VARIABLE: "/run/secrets/ca",
            }
            assert "--no-tls" not in service["command"]

    def test_an_agent_is_started_when_asked_for_and_its_list_is_one(self) -> None:
        agent = self.compose["services"]["agent"]
        assert agent["profiles"] == ["agents"]
        assert f"--coordinator coordinator:{limits.coordinator_node_port_default}" in agent["command"]
        (mounted,) = (volume.split(":") for volume in agent["volumes"] if "commands" in volume)
        assert f"--commands {mounted[1]}" in agent["command"]
        listed = read_command_list(_ROOT / mounted[0])
        for command in listed.commands.values():
            for word in command.arguments:
                if word.startswith("/opt/peacefs/"):
                    assert (_ROOT / word.removeprefix("/opt/peacefs/")).is_file(), word
        stages = re.findall(r"^FROM \S+ AS (\S+)$", (_ROOT / "Dockerfile").read_text(), re.MULTILINE)
        assert agent["build"]["target"] in stages
        assert stages[-1] == "services", "what is built where no stage is named"

    def test_the_image_copies_what_exists(self) -> None:
        dockerfile = (_ROOT / "Dockerfile").read_text()
        for copied in re.findall(r"^COPY (?!--from)(.+) \S+$", dockerfile, re.MULTILINE):
            for name in copied.split():
                assert (_ROOT / name).exists(), name
        assert 'ENTRYPOINT ["peacefs"]' in dockerfile


def test_nothing_that_is_locked_has_an_address() -> None:
    for lock in (_ROOT / "locks").glob("*.lock"):
        text = lock.read_text()
        assert "http" + "://" not in text and "https" + "://" not in text
        for entry in re.split(r"\n(?=[a-z])", text):
            assert "--hash=sha256:" in entry, f"{lock.name}: {entry.splitlines()[0]} has no hash"


def test_the_version_is_told() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", peacefs.__version__)


@pytest.mark.parametrize(
    "beginning", sorted({*parallel.SESSION_FILES, *parallel.JVM, *parallel.LONG} - {parallel.SESSION})
)
def test_parallel_workers_begin_with_files_that_exist(beginning: str) -> None:
    assert list(_ROOT.glob(f"{beginning}*"))


class TestDeploymentWithStandby:
    """The second file is merged into the first one, as by `docker compose -f ... -f ...`."""

    compose = yaml.safe_load((_ROOT / "docker-compose.yml").read_text())["services"]
    standby = yaml.safe_load((_ROOT / "docker-compose.standby.yml").read_text())["services"]

    @pytest.mark.parametrize("name", sorted(name for name in standby if not name.startswith("etcd")))
    def test_a_service_uses_commands_and_options_that_exist(self, name: str) -> None:
        words = self.standby[name]["command"].split()
        shown = CliRunner().invoke(application, [words[0], "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
        for option in (word for word in words if word.startswith("--")):
            assert option in shown.output, f"peacefs {words[0]} has no {option}"
        if name in self.compose:
            before = self.compose[name]["command"].split()
            added = [word for word in words if word not in before]
            assert all("journal" in word or "secrets" in word or "standby:9821" in word for word in added), added

    def test_every_datanode_knows_both_coordinators(self) -> None:
        for name in self.compose:
            if name.startswith("datanode"):
                assert "--coordinator coordinator:9820,standby:9821" in self.standby[name]["command"]

    @pytest.mark.parametrize("name", ["coordinator", "standby"])
    def test_a_coordinator_reaches_the_journal_with_its_certificate(self, name: str) -> None:
        environment = self.standby[name]["environment"]
        access, _ = parse_journal(JournalOptions(environment["PEACEFS_JOURNAL"]))
        assert access.is_tls
        assert [host.split(":")[0] for host in access.endpoints] == [
            each for each in self.standby if each.startswith("etcd")
        ]
        assert environment[CERTIFICATE_VARIABLE] == "/run/secrets/certificate"

    def test_members_of_etcd_ask_for_certificates(self) -> None:
        stages = re.findall(r"^FROM \S+ AS (\S+)$", (_ROOT / "Dockerfile").read_text(), re.MULTILINE)
        for name, service in self.standby.items():
            if name.startswith("etcd"):
                assert service["build"]["target"] in stages
                assert {"--client-cert-auth", "--peer-client-cert-auth"} <= set(service["command"].split())
                assert f"--initial-advertise-peer-urls https://{name}:2380" in service["command"]
