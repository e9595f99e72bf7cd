"""Verify a checkpoint: its faults, whether a query would start from it, and what would repair it."""

from __future__ import annotations

from peacefs.protocol.errors import BadRequest

from .findings import CheckpointFinding, Fault, StartVerdict, Verdict
from .inspection import Inspection
from .judge import BatchVerifier
from .layout import METADATA, OFFSETS
from .needs import Needs
from .repairs import find_repair
from .sink_logs import SinkLog
from .start_modes import StartMode


def verify(inspection: Inspection, batch: int | None = None, sink: SinkLog | None = None) -> Verdict:
    """Judge the checkpoint as it is, or a rollback to `batch`, together with the log of its file sink.

    Raises BadRequest if it is no checkpoint.
    """
    layout = inspection.layout
    if not layout.is_checkpoint:
        raise BadRequest(f"{layout.root} is no checkpoint of Spark's: it lacks {OFFSETS} and {METADATA}")
    judge = BatchVerifier(inspection)
    committed = max(layout.commits, default=None)
    judged = committed if batch is None else batch
    as_it_is = judged is None or judged == committed
    of_sink = sink.restart(inspection, judge.goes_on_with(judge.own_mode())) if sink is not None else Needs()
    if judged is None or as_it_is or sink is None:
        in_sink = of_sink.findings
    else:
        in_sink = sink.batch(judged).findings

    def needs_in(mode: StartMode) -> Needs:
        return judge.restart(mode) if judged is None or as_it_is else judge.batch(judged, mode)

    mode = judge.own_mode(None if as_it_is else judged)
    needs = needs_in(mode)
    findings = _distinct(needs.findings + in_sink + judge.gaps())
    restarts = not judge.restart().stops and not of_sink.stops
    first_after = None if as_it_is or judged is None else judged + 1
    return Verdict(
        root=layout.root,
        query=judge.query(),
        planned=max(layout.offsets, default=None),
        committed=committed,
        batch=judged,
        last_good=_last_good(judge, judged, sink),
        restarts=restarts,
        goes_on_with=judge.goes_on_with(judge.own_mode()) if restarts else None,
        files_read=inspection.files_read,
        bytes_read=inspection.bytes_read,
        mode=mode.value,
        starts=[_start(judge, each, needs_in(each).findings + in_sink, first_after) for each in StartMode],
        findings=sorted(findings, key=lambda finding: (not finding.stops, finding.path)),
        notes=sorted({*needs.notes, *inspection.notes}, key=lambda note: note.path),
        repair=find_repair(inspection) if judged == committed else None,
    )


def _start(
    judge: BatchVerifier, mode: StartMode, findings: list[CheckpointFinding], first_after: int | None
) -> StartVerdict:
    """Judge a start in one mode: from the checkpoint as it is, or after a rollback, with batch `first_after`."""
    first = judge.goes_on_with(mode) if first_after is None else first_after
    against = [finding for finding in _distinct(findings) if finding.stops]
    return StartVerdict(
        mode=mode.value,
        starts=not against,
        goes_on_with=None if against else first,
        repeats=not against and mode is not StartMode.REAL_TIME and first in judge.layout.offsets,
        against=[f"{finding.path} is {finding.fault.value}: {finding.reason}" for finding in against],
    )


def _distinct(findings: list[CheckpointFinding]) -> list[CheckpointFinding]:
    """Drop repeated findings of a file. Of two that differ only in `stops`, keep the one that stops."""
    by_file: dict[tuple[str, Fault], CheckpointFinding] = {}
    for finding in sorted(findings, key=lambda each: not each.stops):
        by_file.setdefault((finding.path, finding.fault), finding)
    return list(by_file.values())


def _last_good(judge: BatchVerifier, judged: int | None, sink: SinkLog | None) -> int | None:
    if judged is None:
        return None
    for batch in sorted((done for done in judge.layout.commits if done <= judged), reverse=True):
        if not judge.batch(batch).stops and (sink is None or not sink.batch(batch).stops):
            return batch
    return None
