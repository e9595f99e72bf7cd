"""Dockerfile, compose and Kubernetes manifests: accepted by their linters, and consistent with the code.

`tests/services/test_kubernetes_commands.py` runs their commands.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.manifests import FOLDER, container, resources
from support.services import ROOT
from typer.testing import CliRunner

import peacefs
from peacefs.command import application
from peacefs.coordinator.api.rest.health import HEALTH_PATHS

_SETS = resources("StatefulSet")
_NOT_HERE = "is not here: `make setup` installs it where it can (locks/linters.lock)"


def test_dockerfile_pleases_its_linter() -> None:
    beside = Path(sys.executable).with_name("hadolint")
    program = str(beside) if beside.exists() else shutil.which("hadolint")
    if program is None:
        pytest.skip(f"hadolint {_NOT_HERE}")
    done = subprocess.run([program, str(ROOT / "Dockerfile")], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.glob("*.yaml")))
def test_manifest_is_valid(name: str) -> None:
    if name == "kustomization.yaml":
        text = yaml.safe_load((FOLDER / name).read_text())
        assert {FOLDER / each for each in text["resources"]} == {*FOLDER.glob("*.yaml")} - {FOLDER / name}
        assert {each["newTag"] for each in text["images"]} == {peacefs.__version__}
        assert {each["name"] for each in text["images"]} == {container(each)["image"] for each in _SETS.values()}
        return
    if importlib.util.find_spec("kubernetes_validate") is None:
        pytest.skip(f"kubernetes-validate {_NOT_HERE}")
    import kubernetes_validate

    for document in yaml.safe_load_all((FOLDER / name).read_text()):
        kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)


@pytest.mark.parametrize("name", sorted(_SETS))
def test_pod_may_do_no_more_than_it_has_to(name: str) -> None:
    pod = _SETS[name]["spec"]["template"]["spec"]
    assert pod["securityContext"]["runAsNonRoot"] and pod["securityContext"]["runAsUser"] == 1000
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    own = container(_SETS[name])["securityContext"]
    assert own == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container(_SETS[name])["resources"]["limits"]["memory"]


@pytest.mark.parametrize("name", sorted(_SETS))
def test_pod_gets_no_variables_of_services(name: str) -> None:
    """A Service could set an option by accident: PEACEFS_COORDINATOR_PORT=tcp://10.0.0.1:9870."""
    assert _SETS[name]["spec"]["template"]["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize("name", sorted(_SETS))
def test_disruption_budget_and_service_are_of_the_pods_they_name(name: str) -> None:
    labels = _SETS[name]["spec"]["template"]["metadata"]["labels"]
    budget = resources("PodDisruptionBudget")[name]["spec"]
    assert budget["maxUnavailable"] == 1 and budget["selector"]["matchLabels"] == labels
    service = resources("Service")[_SETS[name]["spec"]["serviceName"]]["spec"]
    assert (service["selector"], service["clusterIP"], service["publishNotReadyAddresses"]) == (
        labels,
        "None",
        True,
    )
    own = {each["name"] for each in container(_SETS[name])["ports"]}
    assert {each["targetPort"] for each in service["ports"]} <= own
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        said = container(_SETS[name])[probe]
        asked: dict[str, Any] = said.get("httpGet") or said["tcpSocket"]
        assert asked["port"] in own
        assert name == "etcd" or asked["path"] in HEALTH_PATHS


@pytest.mark.parametrize("name", ["coordinator", "datanode"])
def test_container_uses_commands_and_options_that_exist(name: str) -> None:
    command, *options = container(_SETS[name])["args"]
    shown = CliRunner().invoke(application, [command, "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"})
    assert shown.exit_code == 0
    for option in options:
        assert option.partition("=")[0] in shown.output, option
    for variable in (each["name"] for each in container(_SETS[name])["env"]):
        assert not variable.startswith("PEACEFS_") or variable in shown.output, variable


def test_names_of_pods_are_those_of_the_certificate() -> None:
    done = subprocess.run([FOLDER / "names"], capture_output=True, text=True, check=True, timeout=60)
    named = set(done.stdout.split())
    pods = {
        f"{name}-{at}.{name}.peacefs.svc" for name, each in _SETS.items() for at in range(each["spec"]["replicas"])
    }
    assert named == pods
    text = "".join(path.read_text() for path in FOLDER.glob("*.yaml"))
    assert set(re.findall(r"\b(?:coordinator|datanode|etcd)-\d\.\w+\.peacefs\.svc\b", text)) <= pods


def test_volumes_are_mounted_where_arguments_say() -> None:
    for name, each in _SETS.items():
        mounted = [mount["mountPath"] for mount in container(each)["volumeMounts"]]
        text = " ".join(
            [*container(each)["args"], *(str(entry.get("value", "")) for entry in container(each).get("env", ()))]
        )
        for path in re.findall(r"/(?:data|run)/[\w/.-]+", text):
            assert any(path.startswith(f"{mount}/") for mount in mounted), f"{name}: {path}"


def test_compose_has_the_profiles_and_a_health_check_for_each_service() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    profiles = {profile for each in services.values() for profile in each.get("profiles", ())}
    assert profiles == {"agents", "monitoring", "spark"}
    for name, each in services.items():
        if each.get("build") == ".":
            assert each["healthcheck"]["test"] == ["CMD", "peacefs-health"], name
            assert each["read_only"] and each["cap_drop"] == ["ALL"], name
        for volume in each.get("volumes", ()):
            if volume.startswith("./"):
                assert (ROOT / volume.split(":")[0]).exists(), volume
    for script in re.findall(r"/opt/peacefs/(examples/\S+?\.py)", (ROOT / "docker-compose.yml").read_text()):
        assert (ROOT / script).is_file(), script


def test_compose_publishes_each_port_by_which_services_reach_each_other() -> None:
    """Services advertise the machine's address, so other services cannot reach a port that is not published."""
    published: dict[str, set[str]] = {}
    commands: dict[str, str] = {}
    for file in ("docker-compose.yml", "docker-compose.standby.yml"):
        for name, each in yaml.safe_load((ROOT / file).read_text())["services"].items():
            published.setdefault(name, set()).update(port.split(":")[-1] for port in each.get("ports", ()))
            commands[name] = each.get("command", "") or commands.get(name, "")
    advertised = {name: text for name, text in commands.items() if "--advertise" in text}
    assert {"coordinator", "standby", "datanode-1"} <= set(advertised)
    for name, text in advertised.items():
        assert set(re.findall(r"--(?:node-|data-)?port (\d+)", text)) <= published[name], name
