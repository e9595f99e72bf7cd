"""`make containers`: exit status 0 when everything was built, started, killed and upgraded, or is skipped."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

from .engine import CannotRunContainers, Engine, StepFailed
from .project import Project, wait

_DATANODES = ("datanode-1", "datanode-2", "datanode-3")
_SERVICES = ("coordinator", *_DATANODES)
_QUERY_TIMEOUT_S = 600.0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m containers", description=__doc__)
    parser.add_argument("--directory", type=Path, help="where images stay, for another time; default: nowhere")
    parser.add_argument(
        "--without-queries", action="store_true", help="do not build and run the image with Spark, which is large"
    )
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="peacefs-containers-", dir="/var/tmp") as made:
        scratch = Path(made)
        try:
            with Engine((asked.directory or scratch / "images").absolute()) as engine:
                _build(engine, with_queries=not asked.without_queries)
                _compose(engine, scratch / "compose", with_queries=not asked.without_queries)
                engine.remove_all()
                _standby(engine, scratch / "standby")
        except CannotRunContainers as missing:
            _say(f"containers are skipped: they need {missing}")
            return 0
        except StepFailed as failed:
            _say(f"FAILED: {failed}")
            return 1
    _say("all of it was done; Kubernetes' manifests are only checked, by `make test`")
    return 0


def _build(engine: Engine, *, with_queries: bool) -> None:
    engine.make_base()
    for target in ("services", "journal", *(("queries",) if with_queries else ())):
        began_s = time.monotonic()
        engine.build(target)
        _say(f"built {target} in {time.monotonic() - began_s:.0f} s")
    # The release after this one, for the upgrade: the same, with another id.
    engine.outside(
        "container=$(buildah from localhost/peacefs:services)"
        " && buildah config --label release=next $container && buildah commit $container localhost/peacefs:next"
        " && buildah rm $container"
    )


def _compose(engine: Engine, directory: Path, *, with_queries: bool) -> None:
    project = Project(engine, directory, "peacefs", ["docker-compose.yml"])
    project.prepare()
    for service in _SERVICES:
        project.tag(service, "localhost/peacefs:services")
    project.up(*_SERVICES)
    project.wait_for_datanodes(3)
    for service in _SERVICES:
        wait(lambda service=service: project.is_healthy(service), f"{service} is healthy")  # type: ignore[misc]
    project.become("alice")
    project.write_and_read()
    _say("docker-compose.yml: four containers are healthy, and a file was written and read over TLS with a token")
    for service in _SERVICES:
        project.kill(service)
        took_s = wait(lambda: _serves(project), f"the cluster serves without {service}")
        project.wait_for_datanodes(3)
        _say(f"killed {service}: written and read again after {took_s:.1f} s, and it was started again")
    _upgrade(project)
    if with_queries:
        project.tag("spark", "localhost/peacefs:queries")
        engine.outside(f"chown 1000 {directory}/token {directory}/certificates/truststore.p12")
        said = project.run_once("spark", _QUERY_TIMEOUT_S)
        batches = project.client("ls /checkpoints/rates/commits").count("/commits/")
        if "Batch: 0" not in said or batches < 2:
            raise StepFailed(f"the query committed {batches} batches: {said[-1500:]}")
        _say(f"the profile spark: a query with state committed {batches} batches, from a container")


def _upgrade(project: Project) -> None:
    """Replace one container after the other, with files written and read between."""
    project.replace("coordinator", "localhost/peacefs:next")
    project.wait_for_datanodes(3)
    took_s = wait(lambda: _serves(project), "the cluster serves with another coordinator")
    for service in _DATANODES:
        project.replace(service, "localhost/peacefs:next")
        project.write_and_read()
        project.wait_for_datanodes(3)
    _say(
        f"upgraded four containers one by one, the coordinator in {took_s:.1f} s: "
        f"all {project.read_all()} files are as they were written"
    )


def _standby(engine: Engine, directory: Path) -> None:
    files = ["docker-compose.yml", "docker-compose.standby.yml"]
    project = Project(engine, directory, "standby", files)
    project.addresses += f",{project.addresses.rpartition(':')[0].removeprefix('https://')}:9871"
    project.prepare()
    members = ("etcd-1", "etcd-2", "etcd-3")
    for service in members:
        project.tag(service, "localhost/peacefs:journal")
    for service in (*_SERVICES, "standby"):
        project.tag(service, "localhost/peacefs:services")
    project.up(*members)
    project.up("coordinator")
    wait(lambda: project.is_healthy("coordinator"), "the coordinator is healthy")
    project.up("standby", *_DATANODES)
    project.wait_for_datanodes(3)
    project.become("alice")
    project.write_and_read()
    wait(lambda: "ready to lead" in project.administer("report"), "the standby is ready to lead")
    project.kill("coordinator")
    took_s = wait(lambda: _serves(project), "the standby leads")
    _say(f"docker-compose.standby.yml: killed the leader, and the standby served after {took_s:.1f} s")
    project.kill("etcd-2")
    project.write_and_read()
    _say(f"killed a member of etcd: all {project.read_all()} files are as they were written")


def _serves(project: Project) -> bool:
    try:
        project.write_and_read()
    except StepFailed:
        return False
    return True


def _say(line: str) -> None:
    print(f"== {line}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
