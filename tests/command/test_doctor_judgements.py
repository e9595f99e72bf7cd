"""The doctor's findings for hand-made facts: a table of faults, each with its finding and advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from peacefs.commands.doctor.facts import (
    Diagnosis,
    Directory,
    Durations,
    Facts,
    Machine,
    Service,
    ServiceMetrics,
    Spark,
    Urgency,
    WantedSetting,
)
from peacefs.commands.doctor.judgements import CHECKS, judge, worst
from peacefs.commands.doctor.machine import file_system_of
from peacefs.commands.doctor.probes import measured
from peacefs.commands.doctor.spark_settings import parse_defaults
from peacefs.commands.doctor.visit import EXIT_STATUS, for_people
from peacefs.protocol.errors import PeerRefused
from peacefs.protocol.values.cluster_status import ChunkCounts, ClusterStatus, DatanodeStatus, UnreferencedStatus

_GIB = 1 << 30
_METRICS = ServiceMetrics(
    version="1.0.0",
    clock_ahead_s=0.01,
    clock_within_s=0.002,
    descriptors_max=65536,
    descriptors_open=100,
    tls_days_left=float("inf"),
    durable=Durations(1000, 0.003, 0.0),
)
_COORDINATOR = Service(
    role="coordinator", name="coordinator", host="10.0.0.1", http_port=9870, is_loopback=False, metrics=_METRICS
)
_DATANODE = Service(
    role="datanode",
    name="dn-1",
    host="10.0.0.2",
    http_port=9864,
    data_port=9866,
    is_loopback=False,
    metrics=_METRICS,
)
_DIRECTORY = Directory(
    path="/data",
    file_system="ext4",
    fsync_median_s=0.001,
    fsync_longest_s=0.004,
    write_bytes_per_second=500e6,
    available_bytes=100 * _GIB,
)
_WANTED = [
    WantedSetting("spark.hadoop.retries", "true", "a restart fails the batch otherwise"),
    WantedSetting("spark.driver.defaultJavaOptions", "-Dkept=64", "connections are kept"),
    WantedSetting("spark.sql.streaming.checkpointLocation", "webhdfs://c:9870/checkpoints", "a place"),
]
_SPARK = Spark(
    version="4.1.0",
    java_version=17,
    java_fault="",
    wanted=_WANTED,
    file="/conf/spark-defaults.conf",
    found={
        "spark.hadoop.retries": "true",
        "spark.driver.defaultJavaOptions": "-Dmine=1 -Dkept=64",
        "spark.sql.streaming.checkpointLocation": "webhdfs://c:9870/elsewhere",
    },
)


def _status() -> ClusterStatus:
    unreferenced = UnreferencedStatus(0, 0, 0, 0, 0, floor_held=False)
    datanode = DatanodeStatus(
        node="dn-1",
        host="10.0.0.2",
        http_port=9864,
        data_port=9866,
        rack="/r",
        state="alive",
        capacity_bytes=_GIB,
        used_bytes=0,
        available_bytes=_GIB,
        replicas=0,
        service="in service",
        to_drain=0,
        without_a_place=0,
        slow=[],
        hop_seconds=None,
        disk_seconds=None,
        disks=[],
    )
    return ClusterStatus(
        cluster="c1",
        epoch=1,
        ready=True,
        address="10.0.0.1:9870",
        datanodes=[datanode],
        chunks=ChunkCounts(0, 0, 0, 0),
        unreferenced=unreferenced,
        unclaimed=unreferenced,
        repaired_total=0,
        replicas_lost_total=0,
        metadata_room_bytes=_GIB,
        commits_missing=False,
    )


_WELL = Facts(
    machine=Machine(version="1.0.0", descriptors_soft=4096, descriptors_hard=4096),
    coordinators=[_COORDINATOR],
    status=_status(),
    datanodes=[_DATANODE],
    guarded={"/": 0o755},
    directories=[_DIRECTORY],
    spark=_SPARK,
)


def _metrics(**changed: object) -> Facts:
    return replace(_WELL, datanodes=[replace(_DATANODE, metrics=replace(_METRICS, **changed))])  # type: ignore[arg-type]


def _service(**changed: object) -> Facts:
    return replace(_WELL, datanodes=[replace(_DATANODE, **changed)])  # type: ignore[arg-type]


def _directory(**changed: object) -> Facts:
    return replace(_WELL, directories=[replace(_DIRECTORY, **changed)])  # type: ignore[arg-type]


def _spark(**changed: object) -> Facts:
    return replace(_WELL, spark=replace(_SPARK, **changed))  # type: ignore[arg-type]


def _ill(facts: Facts) -> list[Diagnosis]:
    return [finding for finding in judge(facts) if finding.verdict is not Urgency.FINE]


def test_doctor_finds_a_good_cluster_fine_in_every_check() -> None:
    findings = judge(_WELL)
    assert [finding for finding in findings if finding.verdict is not Urgency.FINE or finding.advice] == []
    # The certificate is checked if there is one.
    assert {finding.check for finding in findings} == CHECKS.keys() - {"certificates"}
    assert worst(findings) is Urgency.FINE
    assert list(for_people(findings))[-1] == f"0 broken, 0 to change, 0 to know, {len(findings)} fine"
    assert all(judge(_metrics(tls_days_left=days)) for days in (100.0,))


@pytest.mark.parametrize(
    ("facts", "check", "about", "verdict", "seen", "advice"),
    [
        (
            replace(
                _WELL, coordinators=[replace(_COORDINATOR, metrics=None, fault="nobody is there")], status=None
            ),
            "answers",
            "coordinator",
            Urgency.BROKEN,
            "nobody is there",
            "--coordinator or PEACEFS_URL",
        ),
        (
            replace(_WELL, guarded={"/": 0o1777}),
            "rights",
            "/",
            Urgency.CHANGE,
            "everybody may write there (1777)",
            "`peacefs chmod 755 /`",
        ),
        (
            replace(
                _WELL,
                status=replace(_status(), datanodes=[replace(_status().datanodes[0], host="")]),
                datanodes=[],
            ),
            "cluster",
            "datanodes",
            Urgency.NOTE,
            "told to superusers alone",
            "superuser's token",
        ),
        (
            replace(_WELL, status=None, status_fault="no token"),
            "cluster",
            "coordinator",
            Urgency.BROKEN,
            "no token",
            "--token-file",
        ),
        (_service(metrics=None, fault="refused"), "answers", "dn-1", Urgency.BROKEN, "refused", "open port 9864"),
        (
            _metrics(version="0.9.0"),
            "versions",
            "dn-1",
            Urgency.CHANGE,
            "version 0.9.0; here 1.0.0",
            "one version",
        ),
        (_metrics(version=None), "versions", "dn-1", Urgency.CHANGE, "older release", "Upgrade it to 1.0.0"),
        (_metrics(clock_ahead_s=-2.0), "clocks", "dn-1", Urgency.CHANGE, "2.00 s behind", "chrony"),
        (_metrics(clock_ahead_s=90.0), "clocks", "dn-1", Urgency.BROKEN, "90.00 s ahead of", "chrony"),
        (
            _service(is_loopback=True, host="127.0.0.1"),
            "addresses",
            "dn-1",
            Urgency.BROKEN,
            "127.0.0.1:9864",
            "--adv",
        ),
        (
            _service(data_fault="dn-2 answers"),
            "ports",
            "dn-1",
            Urgency.BROKEN,
            "data port 9866 of 10.0.0.2: dn-2 answers",
            "Open data port 9866",
        ),
        (
            replace(_WELL, machine=Machine(version="1.0.0", descriptors_soft=256, descriptors_hard=4096)),
            "descriptors",
            "this machine",
            Urgency.CHANGE,
            "256 files",
            "`ulimit -n 1024`, or nofile",
        ),
        (_metrics(descriptors_max=1024), "descriptors", "dn-1", Urgency.CHANGE, "100 of 1024", "LimitNOFILE=8192"),
        (_metrics(descriptors_open=60000), "descriptors", "dn-1", Urgency.CHANGE, "60000 of 65536", "Raise"),
        (_metrics(tls_days_left=3.0), "certificates", "dn-1", Urgency.CHANGE, "3 more days", "Replace"),
        (_metrics(tls_days_left=-1.0), "certificates", "dn-1", Urgency.BROKEN, "0 more days", "Replace"),
        (
            _metrics(durable=Durations(50, 0.2, 0.5)),
            "durability",
            "dn-1",
            Urgency.CHANGE,
            "200.0 ms on average, 50% over 100 ms",
            "SSD",
        ),
        (_directory(fsync_median_s=0.05), "directory", "/data", Urgency.CHANGE, "an fsync takes 50.00 ms", "SSD"),
        (_directory(write_bytes_per_second=10e6), "directory", "/data", Urgency.CHANGE, "10 MiB/s", "faster one"),
        (_directory(file_system="tmpfs"), "directory", "/data", Urgency.CHANGE, "is memory", "Mount a disk"),
        (_directory(fault="Permission denied"), "directory", "/data", Urgency.BROKEN, "Permission", "may write"),
        (
            _spark(found=_SPARK.found | {"spark.hadoop.retries": "false"}),  # type: ignore[operator]
            "spark",
            "spark.hadoop.retries",
            Urgency.CHANGE,
            "another value",
            "Add the line `spark.hadoop.retries true` to /conf/spark-defaults.conf: a restart fails",
        ),
        (
            _spark(found={key: value for key, value in (_SPARK.found or {}).items() if "Java" not in key}),
            "spark",
            "spark.driver.defaultJavaOptions",
            Urgency.CHANGE,
            "is not set",
            "-Dkept=64",
        ),
        (
            _spark(found=_SPARK.found | {"spark.sql.streaming.checkpointLocation": "hdfs://old/x"}),  # type: ignore[operator]
            "spark",
            "spark.sql.streaming.checkpointLocation",
            Urgency.CHANGE,
            "another file system",
            "webhdfs://c:9870/checkpoints",
        ),
        (_spark(found=None), "spark", "settings", Urgency.NOTE, "there is no /conf", "peacefs spark conf"),
        (
            _spark(java_version=None, java_fault="none was found"),
            "spark",
            "java",
            Urgency.BROKEN,
            "none",
            "Install",
        ),
        (_spark(wanted_fault="Spark 3.4 is too old"), "spark", "version", Urgency.BROKEN, "3.4", "3.5 or newer"),
    ],
)
def test_doctor_names_each_harm_with_what_to_do(
    facts: Facts, check: str, about: str, verdict: Urgency, seen: str, advice: str
) -> None:
    [found] = _ill(facts)
    assert (found.check, found.about, found.verdict) == (check, about, verdict)
    assert seen in found.seen and advice in found.advice
    assert EXIT_STATUS[worst(judge(facts))] == {Urgency.NOTE: 0, Urgency.CHANGE: 3, Urgency.BROKEN: 4}[verdict]
    assert sum(found.advice in line for line in for_people(judge(facts))) == 1


def test_doctor_says_what_the_cluster_itself_complains_of() -> None:
    status = _status()
    dead = replace(status.datanodes[0], state="dead")
    found = _ill(replace(_WELL, status=replace(status, datanodes=[dead], chunks=ChunkCounts(5, 0, 2, 0))))
    assert [(each.about, each.verdict) for each in found] == [
        ("coordinator", Urgency.BROKEN),
        ("dn-1", Urgency.CHANGE),
    ]
    assert "2 chunks without a good replica" in found[0].seen
    [alone] = _ill(replace(_WELL, status=replace(status, datanodes=[]), datanodes=[]))
    assert alone.seen == "no datanode has registered"


def test_doctor_concludes_nothing_from_a_few_commits_or_an_imprecise_clock() -> None:
    assert _ill(_metrics(durable=Durations(3, 5.0, 1.0))) == []
    assert _ill(_metrics(clock_ahead_s=3.0, clock_within_s=2.5)) == []
    assert _ill(_metrics(clock_ahead_s=None)) == []


def test_doctor_never_repeats_what_a_settings_file_holds() -> None:
    found = parse_defaults(
        "# a comment\nspark.hadoop.retries=false s3cret\n\nspark.driver.defaultJavaOptions : -Dp=s3cret\n"
    )
    assert found == {"spark.hadoop.retries": "false s3cret", "spark.driver.defaultJavaOptions": "-Dp=s3cret"}
    shown = list(for_people(judge(_spark(found=found))))
    assert not any("s3cret" in line for line in shown)


def test_doctor_reads_metrics_and_clocks_of_services() -> None:
    text = b"""# TYPE peacefs_build_info gauge
peacefs_build_info{protocol="5",version="2.0"} 1.0
# TYPE peacefs_time_seconds gauge
peacefs_time_seconds 1000.5
# TYPE process_max_fds gauge
process_max_fds 1024.0
# TYPE peacefs_commit_seconds histogram
peacefs_commit_seconds_bucket{le="0.1"} 3.0
peacefs_commit_seconds_bucket{le="+Inf"} 4.0
peacefs_commit_seconds_count 4.0
peacefs_commit_seconds_sum 2.0
"""
    clock = iter([999.0, 1001.0])
    found = measured(lambda: text, lambda: next(clock))
    assert (found.version, found.clock_ahead_s, found.clock_within_s) == ("2.0", 0.5, 1.0)
    assert (found.descriptors_max, found.descriptors_open) == (1024, None)
    assert found.durable == Durations(4, 0.5, 0.25)
    for strange in (b"<html>", b"some_other_metric 1.0\n", b"\xff\xfe"):
        with pytest.raises(PeerRefused, match="something else"):
            measured(lambda strange=strange: strange)  # type: ignore[misc]


def test_doctor_knows_the_file_system_of_a_path() -> None:
    from pathlib import Path

    mounts = "/dev/a / ext4 rw 0 0\ntmpfs /mnt/my\\040disk tmpfs rw 0 0\n/dev/b /mnt xfs rw 0 0\n"
    assert file_system_of(Path("/mnt/my disk/x"), mounts) == "tmpfs"
    assert file_system_of(Path("/mnt/mine"), mounts) == "xfs"
    assert file_system_of(Path("/home"), mounts) == "ext4"
