"""What a doctor measures and finds. Values only; none contains a secret."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from peacefs.protocol.values.cluster_status import ClusterStatus


class Urgency(StrEnum):
    """The urgency of a finding, in ascending order."""

    FINE = "fine"
    #: Nothing is wrong, but it may be of interest.
    NOTE = "note"
    #: It works, but should be changed.
    CHANGE = "change"
    #: It does not work.
    BROKEN = "broken"


VERDICTS = tuple(Urgency)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding: its subject (`about`), what was `seen`, and `advice` if something should be done."""

    check: str
    about: str
    verdict: Urgency
    seen: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class Durations:
    """Durations that a service has measured since it started."""

    count: int
    mean_s: float
    #: The share of durations above 0.1 s.
    slow_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceMetrics:
    """A service's `/metrics`, as far as they matter. Fields are None if an older release lacks them."""

    version: str | None
    #: How far its clock is ahead of this machine's; the error is at most `clock_within_s`.
    clock_ahead_s: float | None
    clock_within_s: float
    descriptors_max: float | None
    descriptors_open: float | None
    tls_days_left: float | None
    #: Commits of a coordinator, or chunks that a datanode made durable.
    durable: Durations | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    """A coordinator or datanode, as seen from this machine."""

    role: str
    name: str
    host: str
    http_port: int
    is_loopback: bool
    #: None if it did not answer; `fault` says why.
    metrics: ServiceMetrics | None = None
    fault: str = ""
    data_port: int | None = None
    #: Why this datanode does not answer at its data port; empty if it does.
    data_fault: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    version: str
    descriptors_soft: int
    descriptors_hard: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Directory:
    """The disk of a directory on this machine. If `fault` is set, it was not measured."""

    path: str
    file_system: str = ""
    #: Seconds per small append with its fsync.
    fsync_median_s: float = 0.0
    fsync_longest_s: float = 0.0
    write_bytes_per_second: float = 0.0
    available_bytes: int = 0
    fault: str = ""


@dataclass(frozen=True, slots=True)
class WantedSetting:
    key: str
    value: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Spark:
    """The installed Spark, and the settings in its spark-defaults.conf (`found`, None without a file)."""

    version: str
    java_version: int | None
    java_fault: str
    wanted: Sequence[WantedSetting]
    wanted_fault: str = ""
    file: str
    found: Mapping[str, str] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    machine: Machine
    #: The coordinators that were asked; several if there are standbys.
    coordinators: Sequence[Service]
    #: None if it is unknown; `status_fault` says why.
    status: ClusterStatus | None = None
    status_fault: str = ""
    datanodes: Sequence[Service] = ()
    #: The permissions of directories that only superusers should write to, as far as the doctor may see them.
    guarded: Mapping[str, int] = field(default_factory=dict)
    directories: Sequence[Directory] = ()
    #: None without Spark.
    spark: Spark | None = None
