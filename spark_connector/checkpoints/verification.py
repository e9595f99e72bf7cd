"""Verify a checkpoint: what is wrong with it, whether a query would start, what would make it start."""

from __future__ import annotations

from peacefs.protocol.errors import BadRequest

from .findings import CheckpointFinding, Fault, Verdict
from .inspection import Inspection
from .judge import BatchVerifier
from .layout import METADATA, OFFSETS
from .repairs import find_repair


def verify(inspection: Inspection, batch: int | None = None) -> Verdict:
    """Judges the checkpoint as it is, or a rollback to `batch`. Raises BadRequest for what is no checkpoint."""
    layout = inspection.layout
    if not layout.is_checkpoint:
        raise BadRequest(f"{layout.root} is no checkpoint of Spark's: it lacks {OFFSETS} and {METADATA}")
    judge = BatchVerifier(inspection)
    committed = max(layout.commits, default=None)
    judged = committed if batch is None else batch
    needs = judge.restart() if judged is None or judged == committed else judge.batch(judged)
    findings = _distinct(needs.findings + judge.gaps())
    restarts = not judge.restart().stops
    return Verdict(
        root=layout.root,
        query=judge.query(),
        planned=max(layout.offsets, default=None),
        committed=committed,
        batch=judged,
        last_good=_last_good(judge, judged),
        restarts=restarts,
        goes_on_with=judge.goes_on_with() if restarts else None,
        files_read=inspection.files_read,
        bytes_read=inspection.bytes_read,
        findings=sorted(findings, key=lambda finding: (not finding.stops, finding.path)),
        notes=sorted({*needs.notes, *inspection.notes}, key=lambda note: note.path),
        repair=find_repair(inspection) if judged == committed else None,
    )


def _distinct(findings: list[CheckpointFinding]) -> list[CheckpointFinding]:
    """Without what is said of a file twice, in one place more gravely than in the other."""
    by_file: dict[tuple[str, Fault], CheckpointFinding] = {}
    for finding in sorted(findings, key=lambda each: not each.stops):
        by_file.setdefault((finding.path, finding.fault), finding)
    return list(by_file.values())


def _last_good(judge: BatchVerifier, judged: int | None) -> int | None:
    if judged is None:
        return None
    for batch in sorted((done for done in judge.layout.commits if done <= judged), reverse=True):
        if not judge.batch(batch).stops:
            return batch
    return None
