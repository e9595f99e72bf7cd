"""Run the doctor once: measure, judge, print."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

import msgspec

from peacefs.client.command_line.listing import print_line
from peacefs.client.control.addresses import CoordinatorAddress, parse_address
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.values.cluster_status import ClusterStatus

from .facts import VERDICTS, Diagnosis, Facts, Urgency
from .judgements import judge, worst
from .machine import find_spark, measure_directory, measure_machine
from .probes import ClusterProbes

#: The exit status for the worst finding.
EXIT_STATUS = {Urgency.FINE: 0, Urgency.NOTE: 0, Urgency.CHANGE: 3, Urgency.BROKEN: 4}


def visit(coordinator: str, directories: Sequence[Path], spark_settings: Path | None, *, as_json: bool) -> int:
    """Print the findings and return the exit status. Raises BadRequest for a malformed address."""
    findings = judge(measure(coordinator, directories, spark_settings))
    lines = _as_json(findings) if as_json else for_people(findings)
    for line in lines:
        print_line(line)
    return EXIT_STATUS[worst(findings)]


def measure(coordinator: str, directories: Sequence[Path], spark_settings: Path | None) -> Facts:
    address = parse_address(coordinator)
    probes = ClusterProbes(address)
    status: ClusterStatus | None = None
    fault = ""
    try:
        status = probes.status()
    except PeacefsError as error:
        fault = error.message
    return Facts(
        machine=measure_machine(),
        coordinators=probes.coordinators(),
        status=status,
        status_fault=fault,
        datanodes=[] if status is None else probes.datanodes(status),
        guarded={} if status is None else probes.guarded_directories(),
        directories=[measure_directory(path) for path in directories],
        spark=find_spark(_for_spark(address, coordinator, status), spark_settings, os.environ),
    )


def _for_spark(address: CoordinatorAddress, given: str, status: ClusterStatus | None) -> str:
    """Return the coordinator's address for Spark, which cannot use a local socket."""
    return given if address.socket is None or status is None else status.address


def for_people(findings: Sequence[Diagnosis]) -> Iterator[str]:
    """Format findings as a line each, with a second line for advice, and a summary line."""
    words = {Urgency.FINE: "ok", Urgency.NOTE: "note", Urgency.CHANGE: "CHANGE", Urgency.BROKEN: "BROKEN"}
    width = max(map(len, words.values()))
    for finding in findings:
        yield f"{words[finding.verdict]:<{width}}  {finding.check}: {finding.about}: {finding.seen}"
        if finding.advice:
            yield f"{'':<{width}}  -> {finding.advice}"
    counts = {verdict: sum(finding.verdict is verdict for finding in findings) for verdict in VERDICTS}
    yield (
        f"{counts[Urgency.BROKEN]} broken, {counts[Urgency.CHANGE]} to change, "
        f"{counts[Urgency.NOTE]} to know, {counts[Urgency.FINE]} fine"
    )


def _as_json(findings: Sequence[Diagnosis]) -> Iterator[str]:
    for finding in findings:
        yield msgspec.json.encode(asdict(finding)).decode()
