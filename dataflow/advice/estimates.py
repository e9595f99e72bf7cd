"""Estimate from closed forms what each technique costs a query, and how long a recovery takes.

HA's three approaches use `closed_forms` (HA, Table 3). The forms of the other techniques are of the same kind.
Bytes over links and processor time are shares of what the query takes without any technique; recovery is measured
from the detection of a failure. SGuard: load a checkpoint and replay half an interval (SGuard 3). CEC: read the
log back over about twice the open windows, and replay the rows of the oldest window (CEC II.B). Flux: both halves
of a pair process everything (Flux 3). Peer ring: r backups of each row and r copies of each change (SMR V).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from peacefs.dataflow.advice import closed_forms
from peacefs.dataflow.advice.closed_forms import UnitLoad

from .load import Machines, Parameters, QueryLoad


@dataclass(frozen=True)
class Estimate:
    """Costs as shares of those of amnesia (1.0 is twice as much), bytes, and seconds from detection on."""

    processor: float
    #: Bytes over links and into files, as shares of the bytes of the sources' rows.
    links: float
    files: float
    #: Memory in bytes beside the state itself: rows for replay, copies, second states.
    memory_bytes: float
    recovery_s: float


def estimate(name: str, load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    """Return the estimate for a technique, by the name of its class (such as "SGuard").

    Raises KeyError if there is no such technique.
    """
    return _FORMS[name](load, around, parameters)


def _unit(load: QueryLoad, around: Machines, parameters: Parameters) -> UnitLoad:
    return UnitLoad(
        rate=load.rate,
        selectivity=load.selectivity,
        processing_s=load.processing_s,
        state_rows=_remembered_rows(load),
        inputs=load.inputs,
        interval_s=parameters.interval_s,
        delay_s=around.delay_s,
        redirection_s=around.redirection_s,
        bandwidth_bits_s=around.link_bytes_s * 8,
        row_bytes=max(1, round(load.row_bytes)),
    )


def _remembered_rows(load: QueryLoad) -> float:
    return load.rate * (load.remembered_s or 0.0)


def _copying(load: QueryLoad, around: Machines, bytes_s: float) -> float:
    """Return the processor time of copies, as a share of the time that rows take."""
    return bytes_s * around.page_byte_s / load.processors


def _storing(load: QueryLoad, around: Machines, interval_s: float) -> float:
    """Return the processor time of checkpoints or commits of all units, as a share of the time that rows take."""
    return load.units * around.storing_processor_s / interval_s / load.processors


def _amnesia(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    return Estimate(0.0, 0.0, 0.0, 0.0, closed_forms.first_row_s(_unit(load, around, parameters)))


def _upstream_backup(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    unit = _unit(load, around, parameters)
    kept = closed_forms.upstream_backup_replayed_rows(unit) * load.row_bytes
    links = closed_forms.upstream_backup_bandwidth(unit)
    return Estimate(0.05, links, 0.0, kept, closed_forms.upstream_backup_recovery_s(unit))


def _active_standby(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    unit = _unit(load, around, parameters)
    kept = load.state_bytes + closed_forms.active_standby_repeated_rows(unit) * load.row_bytes
    recovery_s = closed_forms.active_standby_recovery_s(unit, precise=True)
    return Estimate(1.0, closed_forms.active_standby_bandwidth(unit), 0.0, kept, recovery_s)


def _passive_standby(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    unit = _unit(load, around, parameters)
    links = load.copied_bytes_s / load.bytes_s + closed_forms.trimming_share(unit, 1)
    kept = load.state_bytes + load.bytes_s * parameters.interval_s
    # The primary sends a copy, and the standby reads it.
    processor = 2 * _copying(load, around, load.copied_bytes_s)
    return Estimate(processor, links, 0.0, kept, closed_forms.passive_standby_recovery_s(unit))


def _sguard(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    unit = _unit(load, around, parameters)
    files = around.replication * load.changed_bytes_s / load.bytes_s
    replayed_s = (parameters.checkpoint_s / 2 + around.stored_s) * load.rate * load.processing_s
    recovery_s = closed_forms.first_row_s(unit) + load.state_bytes / around.load_bytes_s + replayed_s
    kept = load.bytes_s * (parameters.checkpoint_s + around.stored_s)
    processor = _copying(load, around, load.changed_bytes_s) + _storing(load, around, parameters.checkpoint_s)
    return Estimate(processor, 0.0, files, kept, recovery_s)


def _cec(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    unit = _unit(load, around, parameters)
    remembered_s = load.remembered_s or 0.0
    written = load.windows_per_row * around.tuple_bytes + load.selectivity * load.row_bytes
    files = around.replication * written / load.row_bytes
    extent = 2 * load.open_windows
    replayed_s = remembered_s * load.rate * load.processing_s
    recovery_s = closed_forms.first_row_s(unit) + extent * around.tuple_s + replayed_s
    noting = load.windows_per_row * around.window_s / load.processing_s
    processor = noting + _storing(load, around, parameters.interval_s)
    return Estimate(processor, 0.0, files, load.bytes_s * remembered_s, recovery_s)


def _peer_ring(load: QueryLoad, around: Machines, parameters: Parameters) -> Estimate:
    unit, backups = _unit(load, around, parameters), parameters.neighbours
    links = backups * (1.0 + load.changed_bytes_s / load.bytes_s)
    kept = backups * (load.state_bytes + load.bytes_s * parameters.checkpoint_s)
    replayed_s = parameters.checkpoint_s / 2 * load.rate * load.processing_s
    processor = backups * (around.backup_share + _copying(load, around, load.changed_bytes_s))
    return Estimate(processor, links, 0.0, kept, closed_forms.first_row_s(unit) + replayed_s)


_FORMS: Mapping[str, Callable[[QueryLoad, Machines, Parameters], Estimate]] = {
    "Amnesia": _amnesia,
    "UpstreamBackup": _upstream_backup,
    "PassiveStandby": _passive_standby,
    "ActiveStandby": _active_standby,
    "SGuard": _sguard,
    "CEC": _cec,
    "Flux": _active_standby,
    "PeerRing": _peer_ring,
}
