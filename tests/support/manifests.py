"""The manifests of `deploy/kubernetes` as data, with their containers' commands as processes of this machine."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from support.etcd import free_ports
from support.services import ROOT

FOLDER = ROOT / "deploy" / "kubernetes"
HOST = "127.0.0.1"
_SERVICE = re.compile(
    r"((?:coordinator|datanode|etcd)-\d)\.(?:coordinator|datanode|etcd)\.peacefs\.svc(?::(\d+))?"
)


def resources(kind: str) -> dict[str, dict[str, Any]]:
    """Return the resources of a kind by their names."""
    texts = [FOLDER / name for name in yaml.safe_load((FOLDER / "kustomization.yaml").read_text())["resources"]]
    documents = [document for path in texts for document in yaml.safe_load_all(path.read_text())]
    return {each["metadata"]["name"]: each for each in documents if each["kind"] == kind}


def container(stateful_set: dict[str, Any]) -> dict[str, Any]:
    (only,) = stateful_set["spec"]["template"]["spec"]["containers"]
    return dict(only)


class OneMachine:
    """This machine in place of all nodes: a directory for each Pod's `/data`, a local port for each Pod's port."""

    def __init__(self, directory: Path, secrets: Path) -> None:
        """`secrets` holds the files of both Secrets."""
        self._directory = directory
        self._secrets = secrets
        self._ports: dict[tuple[str, str], int] = {}
        self._free = iter(free_ports(40))

    def port(self, pod: str, port: str | int) -> int:
        key = pod, str(port)
        if key not in self._ports:
            self._ports[key] = next(self._free)
        return self._ports[key]

    def data(self, pod: str) -> Path:
        return self._directory / pod

    def here(self, pod: str, text: str) -> str:
        """Translate an argument, or the value of a variable, for this machine."""

        def named(match: re.Match[str]) -> str:
            return f"{HOST}:{self.port(match[1], match[2])}" if match[2] else HOST

        text = text.replace("$(POD_NAME)", pod).replace("$(NODE_NAME)", f"node-of-{pod}")
        text = _SERVICE.sub(named, text)
        text = re.sub(r"0\.0\.0\.0:(\d+)", lambda match: f"{HOST}:{self.port(pod, match[1])}", text)
        text = re.sub(r"^(--[a-z-]*port)=(\d+)$", lambda match: f"{match[1]}={self.port(pod, match[2])}", text)
        text = text.replace("0.0.0.0", HOST).replace("/data/", f"{self.data(pod)}/")
        return re.sub(r"/run/peacefs/(?:cluster|tls)", str(self._secrets), text)

    def command(self, pod: str, container: dict[str, Any]) -> list[str]:
        return [self.here(pod, each) for each in container["args"]]

    def environment(self, pod: str, container: dict[str, Any]) -> dict[str, str]:
        return {each["name"]: self.here(pod, each["value"]) for each in container["env"] if "value" in each}

    def probe(self, pod: str, container: dict[str, Any], kind: str) -> str:
        """Return the URL that a probe requests, or the address to which it connects."""
        ports = {each["name"]: each["containerPort"] for each in container["ports"]}
        probe = container[kind]
        if "tcpSocket" in probe:
            return f"{HOST}:{self.port(pod, ports[probe['tcpSocket']['port']])}"
        asked = probe["httpGet"]
        scheme = asked.get("scheme", "HTTP").lower()
        return f"{scheme}://{HOST}:{self.port(pod, ports[asked['port']])}{asked['path']}"
