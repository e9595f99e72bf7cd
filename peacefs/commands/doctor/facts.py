"""The facts that a doctor measures, and what it finds. Values only; no fact holds a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from peacefs.protocol.values.cluster_status import ClusterStatus


class Urgency(StrEnum):
    """The judgement on one thing; the last is the worst."""

    FINE = "fine"
    #: Nothing is wrong, and somebody may want to know.
    NOTE = "note"
    #: It works, and should be changed.
    CHANGE = "change"
    #: It does not work.
    BROKEN = "broken"


#: The order of urgency.
VERDICTS = tuple(Urgency)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One judgement: on what (`about`), what was seen, and what to do where something is to be done."""

    check: str
    about: str
    verdict: Urgency
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations that a service has measured since it began."""

    count: int
    mean_s: float
    #: The share of those that took longer than a tenth of a second.
    slow_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMetrics:
    """A service's answer to `/metrics`, as far as it matters. None for what an older release does not tell."""

    version: str | None
    #: Its clock is so far ahead of this machine's, as exactly as the second number says.
    clock_ahead_s: float | None
    clock_within_s: float
    descriptors_max: float | None
    descriptors_open: float | None
    tls_days_left: float | None
    #: Commits of a coordinator, chunks that a datanode made durable.
    durable: Durations | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A coordinator or datanode as this machine reaches it."""

    role: str
    name: str
    host: str
    http_port: int
    is_loopback: bool
    #: None with `fault`, which says why it did not answer.
    metrics: ServiceMetrics | None = None
    fault: str = ""
    data_port: int | None = None
    #: Why another than this datanode, or nobody, is at its data port; empty if it is.
    data_fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine that the doctor runs on."""

    version: str
    descriptors_soft: int
    descriptors_hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The disk of a directory of this machine. With `fault` it was not measured."""

    path: str
    file_system: str = ""
    #: Seconds of one small append with its fsync.
    fsync_median_s: float = 0.0
    fsync_longest_s: float = 0.0
    write_bytes_per_second: float = 0.0
    available_bytes: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class WantedSetting:
    """A setting of Spark and its reason."""

    key: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """The Spark that is installed here, and the settings of its spark-defaults.conf; None where there is none."""

    version: str
    java_version: int | None
    java_fault: str
    wanted: Sequence[WantedSetting]
    wanted_fault: str = ""
    file: str
    found: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """All that was measured."""

    machine: Machine
    #: The addresses that were dialled; several where there are standbys.
    coordinators: Sequence[Service]
    #: None with `status_fault`, which says why.
    status: ClusterStatus | None = None
    status_fault: str = ""
    datanodes: Sequence[Service] = ()
    #: The permissions of directories that only superusers should write to; those that the doctor may look at.
    guarded: Mapping[str, int] = field(default_factory=dict)
    directories: Sequence[Directory] = ()
    #: None where there is no Spark.
    spark: Spark | None = None
