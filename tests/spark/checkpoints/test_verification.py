"""Every missing or damaged file of a checkpoint is found and named, and the last good batch is reported.

What stops a restart was observed by restarting Spark 4.3 on checkpoints damaged in these ways;
`test_real_checkpoints` repeats some of that.
"""

from __future__ import annotations

import json
import sys

import pyarrow
import pytest
from support import checkpoints as made
from support.checkpoints import ROOT, MemoryTree, uid

from peacefs.protocol.errors import BadRequest
from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.findings import Fault, Verdict
from peacefs.spark_connector.checkpoints.formats import lz4_stream
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.pruning import Retention, plan_pruning
from peacefs.spark_connector.checkpoints.verification import verify


def judge(tree: MemoryTree, batch: int | None = None) -> Verdict:
    return verify(Inspection(tree, read_layout(tree, ROOT)), batch)


def flip(tree: MemoryTree, path: str) -> None:
    """Change a byte. Change the last byte of an SST file, of which only length and end are verified without a
    checksum.
    """
    data = bytearray(tree.files[f"{ROOT}/{path}"])
    data[-1 if path.endswith(".sst") else len(data) // 2] ^= 0xFF
    tree.files[f"{ROOT}/{path}"] = bytes(data)


def file_like(tree: MemoryTree, start: str, end: str = "") -> str:
    """Return the last file of a kind."""
    paths = [path.removeprefix(f"{ROOT}/") for path in tree.files]
    return sorted(path for path in paths if path.startswith(start) and path.endswith(end))[-1]


#: Start and end of the file's path; whether a restart works if it is missing, or damaged; the last good batch if
#: it is missing, or damaged. There are batches 0 to 7, snapshots of versions 3 and 6, and compactions at 2 and 5.
_KINDS: list[tuple[str, str, bool, bool, int | None, int | None]] = [
    ("metadata", "", False, False, None, None),
    ("offsets/7", "", False, False, 6, 6),
    ("offsets/6", "", False, False, 5, 5),
    ("commits/7", "", True, False, 6, 6),
    ("sources/0/5.compact", "", False, False, 4, 4),
    ("sources/0/6", "", False, False, 5, 5),
    ("sources/0/7", "", False, False, 6, 6),
    ("state/0/_metadata/metadata", "", True, True, 7, 7),
    ("state/0/0/_metadata/schema", "", True, False, 7, None),
    ("state/0/1/8", ".changelog", False, False, 6, 6),
    ("state/0/1/7", ".changelog", False, False, 5, 5),
    ("state/0/1/6", ".zip", True, True, 7, 7),
    ("state/0/1/SSTs/000011", ".sst", True, True, 7, 7),
    ("state/0/1/SSTs/000008", ".sst", True, True, 7, 7),
]


@pytest.mark.parametrize("state_format", [1, 2])
@pytest.mark.parametrize("kind", _KINDS, ids=lambda kind: kind[0])
@pytest.mark.parametrize("damaged", [False, True], ids=["missing", "damaged"])
def test_a_file_that_is_missing_or_damaged_is_found_and_the_last_good_batch_given(
    state_format: int, kind: tuple[str, str, bool, bool, int | None, int | None], damaged: bool
) -> None:
    start, end, *expected = kind
    survives, last_good = expected[damaged], expected[2 + damaged]
    tree = made.checkpoint(state_format=state_format)
    path = file_like(tree, start, end)
    if damaged:
        flip(tree, path)
    else:
        del tree.files[f"{ROOT}/{path}"]
        tree.files.pop(f"{ROOT}/{path}.crc", None)
    verdict = judge(tree)
    assert verdict.last_good == last_good
    assert verdict.restarts is survives
    if path == "commits/7" and not damaged:
        assert verdict.batch == 6 and not verdict.findings, "batch 7 was planned, and is repeated"
        return
    if end == ".zip" and not damaged:
        assert not verdict.findings, "there is an earlier snapshot, and every changelog since"
        return
    named = {finding.path: finding for finding in verdict.findings}
    stem = path.removesuffix(".compact")
    culprit = next((named[name] for name in named if path.startswith(name.rstrip("*")) or name == stem), None)
    if path == "sources/0/7" and not damaged:
        culprit = named["offsets/7"]
        assert culprit.fault is Fault.INCONSISTENT
    assert culprit is not None, verdict.findings
    assert culprit.stops is not survives


@pytest.mark.parametrize("state_format", [1, 2])
def test_a_whole_checkpoint_is_good_to_its_last_batch_and_only_what_it_needs_is_read(state_format: int) -> None:
    tree = made.checkpoint(state_format=state_format)
    verdict = judge(tree)
    assert (verdict.batch, verdict.last_good, verdict.restarts, verdict.findings) == (7, 7, True, [])
    assert verdict.query == made.QUERY
    flip(tree, file_like(tree, "state/0/0/2", ".changelog"))
    assert judge(tree).findings == [], "the snapshot of version 6 comes after it"
    assert judge(tree, batch=1).last_good == 0


@pytest.mark.parametrize("state_format", [1, 2])
def test_an_earlier_batch_is_judged_by_what_it_needs(state_format: int) -> None:
    tree = made.checkpoint(state_format=state_format)
    flip(tree, file_like(tree, "state/0/0/8", ".changelog"))
    verdict = judge(tree, batch=5)
    assert (verdict.batch, verdict.last_good, verdict.findings) == (5, 5, [])


def test_a_batch_that_is_gone_is_missing() -> None:
    verdict = judge(made.checkpoint(), batch=99)
    assert {finding.path for finding in verdict.findings} >= {"offsets/99", "commits/99"}
    assert verdict.restarts and verdict.last_good == 7, "as it is the checkpoint is whole"


def test_a_query_that_has_done_no_batch_restarts_from_nothing() -> None:
    tree = made.checkpoint(batches=1)
    tree.files = {path: data for path, data in tree.files.items() if "/commits/" not in path}
    verdict = judge(tree)
    assert (verdict.planned, verdict.batch, verdict.last_good, verdict.restarts) == (0, None, None, True)


def test_a_planned_batch_whose_offsets_are_damaged_stops_the_restart_but_not_a_way_back() -> None:
    tree = made.checkpoint()
    del tree.files[f"{ROOT}/commits/7"]
    flip(tree, "offsets/7")
    verdict = judge(tree)
    assert not verdict.restarts
    assert verdict.last_good == 6


def test_commits_ahead_of_offsets_are_no_good_state() -> None:
    tree = made.checkpoint()
    for batch in (6, 7):
        del tree.files[f"{ROOT}/offsets/{batch}"]
    verdict = judge(tree)
    assert not verdict.restarts
    assert verdict.last_good == 5


@pytest.mark.parametrize("state_format", [1, 2])
def test_offsets_two_ahead_of_commits_stop_a_start_only_in_format_2(state_format: int) -> None:
    tree = made.checkpoint(state_format=state_format)
    for batch in (6, 7):
        del tree.files[f"{ROOT}/commits/{batch}"]
    verdict = judge(tree)
    (found,) = verdict.findings
    assert (found.path, found.fault) == ("commits/6", Fault.MISSING)
    assert verdict.restarts is (state_format == 1)
    assert verdict.goes_on_with == (7 if state_format == 1 else None)
    assert verdict.last_good == 5


def test_a_whole_partition_that_is_gone_is_found() -> None:
    tree = made.checkpoint(partitions=3)
    tree.files = {path: data for path, data in tree.files.items() if "/state/0/2/" not in path}
    verdict = judge(tree)
    assert [finding.path for finding in verdict.findings] == ["state/0/2"]
    assert verdict.last_good is None


def test_a_spark_before_4_keeps_no_metadata_of_operators_and_nothing_is_wrong_with_that() -> None:
    tree = made.checkpoint(partitions=3, spark="3.5")
    verdict = judge(tree)
    assert (verdict.findings, verdict.last_good, verdict.restarts) == ([], 7, True)
    assert [note.path for note in verdict.notes] == ["state/0"] and "before 4.0" in verdict.notes[0].reason
    tree.files = {path: data for path, data in tree.files.items() if "/state/0/2/" not in path}
    verdict = judge(tree)
    assert [finding.path for finding in verdict.findings] == ["state/0/2"], "the offsets say how many there are"
    assert verdict.last_good is None


def test_snapshot_that_is_damaged_stops_a_spark_before_4_1_and_its_removal_helps() -> None:
    for spark, restarts in (("3.5", False), ("4.3", True)):
        tree = made.checkpoint(spark=spark)
        flip(tree, "state/0/1/6.zip")
        verdict = judge(tree)
        assert verdict.restarts is restarts
        assert (verdict.repair is None) is restarts
        if verdict.repair is not None:
            assert (verdict.repair.remove, verdict.repair.repeats) == (["state/0/1/6.zip"], None)


def test_query_without_its_id_is_started_by_spark_3_5_and_not_by_4_3() -> None:
    for spark, restarts in (("3.5", True), ("4.3", False)):
        tree = made.checkpoint(spark=spark)
        del tree.files[f"{ROOT}/metadata"]
        assert judge(tree).restarts is restarts


def test_schema_that_is_damaged_stops_a_spark_without_metadata_of_operators_and_its_removal_helps() -> None:
    path = "state/0/0/_metadata/schema"
    tree = made.checkpoint(spark="3.5")
    flip(tree, path)
    verdict = judge(tree)
    assert [(found.path, found.stops) for found in verdict.findings] == [(path, True)]
    assert not verdict.restarts and verdict.repair is not None
    assert (verdict.repair.remove, verdict.repair.repeats, verdict.repair.plans_anew) == ([path], None, None)
    del tree.files[f"{ROOT}/{path}"]
    assert judge(tree).findings == [] and judge(tree).restarts, "it is written anew"


@pytest.mark.parametrize("contents", [b"", b'{"id":'], ids=["empty", "cut short"])
def test_query_whose_id_cannot_be_read_is_started_by_spark_3_5_without_it(contents: bytes) -> None:
    for spark, lost in (("3.5", False), ("4.3", True)):
        tree = made.checkpoint(spark=spark)
        tree.files[f"{ROOT}/metadata"] = contents
        verdict = judge(tree)
        assert not verdict.restarts
        assert (verdict.repair is None) is lost, "4.0 and newer refuse a query without it"
        if verdict.repair is not None:
            assert (verdict.repair.remove, verdict.repair.goes_on_with) == (["metadata"], 8)
            assert "another id" in verdict.repair.reason


def test_an_operator_of_spark_3_5_with_one_partition_lacks_none() -> None:
    tree = made.checkpoint(partitions=3, spark="3.5")
    tree.files = {path: data for path, data in tree.files.items() if "/0/1/" not in path and "/0/2/" not in path}
    assert judge(tree).findings == [], "a limit, or a count of everything"


def test_the_attempt_that_counts_is_the_one_that_the_commit_names() -> None:
    tree = made.checkpoint(state_format=2)
    other = "00000000-0000-4000-8000-000000000000"
    tree.files[f"{ROOT}/state/0/0/8_{other}.changelog"] = b"an attempt that failed"
    assert judge(tree).findings == []
    del tree.files[f"{ROOT}/state/0/0/8_{uid(0, 8)}.changelog"]
    assert not judge(tree).restarts


@pytest.mark.parametrize("state_format", [1, 2])
def test_opaque_files_are_noted_and_neither_called_good_nor_bad(
    monkeypatch: pytest.MonkeyPatch, state_format: int
) -> None:
    tree = made.checkpoint(state_format=state_format)
    paths = [path for path in tree.files if path.endswith(".changelog")]
    for path in paths:
        tree.files[path] = pyarrow.compress(lz4_stream.decompress(tree.files[path]), codec="zstd", asbytes=True)
        if state_format == 2:
            tree.files[f"{path}.crc"] = made.spark_checksum(tree.files[path])
    verdict = judge(tree)
    assert (verdict.findings, verdict.notes, verdict.restarts) == ([], [], True)
    bounds = Retention(batches=2, age_ms=None, bytes=None, now_ms=0, orphan_age_ms=0)
    assert plan_pruning(Inspection(tree, read_layout(tree, ROOT)), bounds).oldest == 6

    monkeypatch.setitem(sys.modules, "pyarrow", None)
    verdict = judge(tree)
    assert (verdict.findings, verdict.restarts) == ([], True)
    assert verdict.notes and all("pip install 'peacefs[spark]'" in note.reason for note in verdict.notes)
    if state_format == 2:
        with pytest.raises(BadRequest, match="nothing is pruned"):
            plan_pruning(Inspection(tree, read_layout(tree, ROOT)), bounds)
    else:
        assert plan_pruning(Inspection(tree, read_layout(tree, ROOT)), bounds).oldest == 6


@pytest.mark.parametrize(
    ("prefix", "restarts", "findings", "notes"),
    [
        (f"webhdfs://here:9870{ROOT}", True, 0, 0),
        (f"webhdfs://here:9870{ROOT}/.run-3-1f", True, 0, 0),
        (f"webhdfs://there:9870{ROOT}", True, 0, 1),
        ("webhdfs://here:9870/elsewhere", False, 1, 0),
        ("webhdfs://here:9870/original", True, 1, 0),
        (ROOT, True, 1, 0),
        (f"hdfs://name{ROOT}", False, 1, 0),
    ],
)
def test_schemas_are_judged_where_spark_opens_them(prefix: str, restarts: bool, findings: int, notes: int) -> None:
    tree = made.checkpoint()
    name = f"0_{uid(0, 0)}"
    tree.files[f"{ROOT}/state/0/_stateSchema/default/{name}"] = made.schema()
    store = {"storeName": "default", "numPartitions": 2}
    operator = {"operatorInfo": {"operatorId": 0, "operatorName": "transformWithState"}, "stateStoreInfo": [store]}
    del tree.files[f"{ROOT}/state/0/_metadata/metadata"]
    tree.files[f"/original/state/0/_stateSchema/default/{name}"] = made.schema()
    store["stateSchemaFilePaths"] = [f"{prefix}/state/0/_stateSchema/default/{name}"]
    tree.files[f"{ROOT}/state/0/_metadata/v2/0"] = b"v2\n" + json.dumps(operator).encode()
    verdict = judge(tree)
    assert verdict.restarts is restarts
    assert [finding.fault for finding in verdict.findings] == [Fault.INCONSISTENT] * findings
    assert len(verdict.notes) == notes


def _repartition(tree: MemoryTree, batch: int, partitions: int, *, written: int) -> None:
    """Add what Spark 4.3 leaves of a repartition: a plan with the previous offsets, and a number of snapshots."""
    before = tree.files[f"{ROOT}/offsets/{batch - 1}"].decode()
    shuffled = '"spark.sql.shuffle.partitions": '
    assert f'{shuffled}"2"' in before
    plan = before.replace(f'{shuffled}"2"', f'{shuffled}"{partitions}"')
    tree.files[f"{ROOT}/offsets/{batch}"] = plan.encode()
    for partition in range(written):
        sst = f"000008-{uid(partition, 99)}.sst"
        tree.files[f"{ROOT}/state/0/{partition}/SSTs/{sst}"] = made.table()
        snapshot = made.snapshot({sst: len(made.table())})
        tree.files[f"{ROOT}/state/0/{partition}/{batch + 1}.zip"] = snapshot


@pytest.mark.parametrize("partitions", [1, 4])
def test_partitions_are_those_of_the_last_repartition(partitions: int) -> None:
    """The operator's metadata is written only once, and names 2."""
    tree = made.checkpoint(snapshot_every=100)
    _repartition(tree, 8, partitions, written=partitions)
    tree.files[f"{ROOT}/commits/8"] = tree.files[f"{ROOT}/commits/7"]
    verdict = judge(tree)
    assert (verdict.findings, verdict.last_good, verdict.goes_on_with) == ([], 8, 9)
    del tree.files[f"{ROOT}/state/0/{partitions - 1}/9.zip"]
    verdict = judge(tree)
    assert (verdict.restarts, verdict.last_good) == (False, 7)


@pytest.mark.parametrize("written", [0, 2])
def test_a_repartition_that_was_not_finished_stops_a_start_and_is_undone_with_all_that_it_wrote(
    written: int,
) -> None:
    tree = made.checkpoint(snapshot_every=100)
    ordinary = set(tree.files)
    _repartition(tree, 8, 4, written=written)
    verdict = judge(tree)
    assert not verdict.restarts and verdict.last_good == 7
    (finding,) = verdict.findings
    assert finding.path == "offsets/8" and "again, with 4" in finding.reason
    repair = verdict.repair
    assert repair is not None
    assert (repair.repeats, repair.plans_anew, repair.goes_on_with) == (None, None, 8)
    assert repair.remove[-1] == "offsets/8", "until then it can be given again"
    left = {path for path in tree.files if path.removeprefix(f"{ROOT}/") not in repair.remove}
    assert left - {path for path in left if path.endswith(".sst")} == ordinary


@pytest.mark.parametrize("killed", [False, True])
def test_a_batch_that_a_repartition_passed_over_is_not_good_and_is_repeated(killed: bool) -> None:
    """Spark marks it as done with an empty commit, although its state remains."""
    tree = made.checkpoint(snapshot_every=100)
    _repartition(tree, 8, 4, written=0)
    tree.files[f"{ROOT}/offsets/8"] = tree.files[f"{ROOT}/offsets/8"].replace(
        b'{"logOffset":7}', b'{"logOffset":6}'
    )
    if killed:
        del tree.files[f"{ROOT}/commits/7"]  # by a repair that was killed here
    verdict = judge(tree)
    assert not verdict.restarts
    assert verdict.last_good == 6
    repair = verdict.repair
    assert repair is not None and (repair.repeats, repair.goes_on_with) == (7, 7)
    state = ["state/0/0/8.changelog", "state/0/1/8.changelog"]
    assert repair.remove == [*state, *(["commits/7"] * (not killed)), "offsets/8"]


def test_state_of_a_batch_that_is_planned_anew_goes_with_its_plan() -> None:
    """Its remaining snapshot would be loaded in place of the new batch's state."""
    tree = made.checkpoint(snapshot_every=100)
    _repartition(tree, 8, 2, written=2)
    for name in ("offsets/8", "offsets/7"):
        tree.files[f"{ROOT}/{name}"] = b""
    repair = judge(tree).repair
    assert repair is None
    tree.files[f"{ROOT}/offsets/7"] = made.checkpoint().files[f"{ROOT}/offsets/7"]
    repair = judge(tree).repair
    assert repair is not None and repair.plans_anew == 8
    assert repair.remove == ["state/0/0/9.zip", "state/0/1/9.zip", "offsets/8"]


@pytest.mark.parametrize("name", ["stateStoreSave", "globalLimit"])
def test_an_operator_that_brings_all_rows_together_has_state_in_one_partition(name: str) -> None:
    """Spark 4.3 records two partitions for a limit and for a global count, whose state has no key."""
    tree = made.checkpoint()
    tree.files = {path: data for path, data in tree.files.items() if "/state/0/1/" not in path}
    metadata = f"{ROOT}/state/0/_metadata/metadata"
    tree.files[metadata] = tree.files[metadata].replace(b"stateStoreSave", name.encode())
    schema = f"{ROOT}/state/0/0/_metadata/schema"
    tree.files[schema] = made.schema()
    assert judge(tree).restarts
    tree.files[schema] = made.schema("key")
    assert judge(tree).restarts is (name == "globalLimit"), "with a key it has lost a partition"


def test_offsets_that_go_back_stop_a_start() -> None:
    """A repartition that passes over a batch plans the offsets before it; Spark's file source fails on that."""
    tree = made.checkpoint()
    tree.files[f"{ROOT}/offsets/7"] = tree.files[f"{ROOT}/offsets/5"]
    verdict = judge(tree)
    assert not verdict.restarts and verdict.last_good == 6
    assert [finding.path for finding in verdict.findings] == ["offsets/7"]


def test_numbers_that_no_query_reaches_cost_no_time() -> None:
    tree = made.checkpoint()
    for path in ("offsets", "commits", "sources/0"):
        tree.files[f"{ROOT}/{path}/99999999999999999"] = tree.files[f"{ROOT}/{path}/7"]
    tree.files[f"{ROOT}/state/99999999999999999/0/1.zip"] = b""
    verdict = judge(tree)
    assert not verdict.restarts and len(verdict.findings) < 1000


@pytest.mark.parametrize("names", [["data.parquet"], ["metadata", "notes.txt"], ["commits/0"]])
def test_directory_that_is_no_checkpoint_is_not_judged(names: list[str]) -> None:
    with pytest.raises(BadRequest, match="no checkpoint"):
        judge(MemoryTree({f"{ROOT}/{name}": b"x" for name in names}))


# The following was observed with Spark 4.3 in each mode: `test_ways_to_start` starts queries on such checkpoints.


def stateless(offsets: list[int], commits: list[int], version: int = 1, ends: str = "") -> MemoryTree:
    """Return the checkpoint of a stateless query, whose source numbers its rows. `ends` are further fields of its
    commits.
    """
    planned = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1, "conf": {}})
    files = {f"{ROOT}/metadata": json.dumps({"id": made.QUERY}).encode()}
    files |= {f"{ROOT}/offsets/{batch}": f'v1\n{planned}\n{{"0":{batch}}}'.encode() for batch in offsets}
    commit = f'v{version}\n{{"nextBatchWatermarkMs":0{ends}}}'.encode()
    return MemoryTree(files | {f"{ROOT}/commits/{batch}": commit for batch in commits})


def ways(verdict: Verdict) -> list[int | None]:
    """Return the first batch of each way to start: ordinary, with asynchronous progress tracking, in Real-time
    Mode.
    """
    return [start.goes_on_with for start in verdict.starts]


@pytest.mark.parametrize(
    ("offsets", "commits", "mode", "starts"),
    [
        ([0, 1, 6], [0, 1, 6], "async progress", [None, 7, None]),
        ([0, 1, 6], [0, 1], "async progress", [None, 6, None]),
        # A start planned batch 7 after it, with lower offsets than the batch before.
        ([0, 1, 6, 7], [0, 1, 6, 7], "ordinary", [8, 8, None]),
        # The offsets of committed batch 5 are lost: its rows would come again if batch 6 is not done.
        ([0, 4, 6], [0, 4, 5, 6], "ordinary", [None, 7, None]),
        ([0, 4, 6], [0, 4, 5], "ordinary", [None, None, None]),
        # Nothing says where batch 6 begins, which matters if it is repeated.
        ([6], [6], "ordinary", [None, 7, None]),
        ([6], [], "ordinary", [None, None, None]),
        ([0], [], "ordinary", [0, 0, 0]),
        # A commit without offsets: a start considers its batch done.
        ([0, 1], [0, 1, 6], "ordinary", [None, None, None]),
    ],
)
def test_each_way_to_start_a_query_without_state_has_its_verdict(
    offsets: list[int], commits: list[int], mode: str, starts: list[int | None]
) -> None:
    verdict = judge(stateless(offsets, commits))
    assert (verdict.mode, ways(verdict)) == (mode, starts)
    own = next(start for start in verdict.starts if start.mode == mode)
    assert (verdict.restarts, verdict.goes_on_with) == (own.starts, own.goes_on_with)


@pytest.mark.parametrize(
    ("offsets", "commits", "starts"),
    [
        ([0, 1, 2], [0, 1, 2], [3, 3, 3]),
        # The plan is removed, and the batch reads the data available then.
        ([0, 1, 2], [0, 1], [2, 2, 2]),
        ([0, 1, 6], [0, 1], [None, 6, 2]),
        ([0, 1, 6], [0, 1, 6], [None, 7, 7]),
        # Without offsets/3, a commit is later than all offsets.
        ([0, 1, 3], [0, 1, 2], [None, None, None]),
        # Batch 1 was done before batch 2 was planned. Real-time Mode considers it not done.
        ([0, 1, 2], [0], [2, 2, None]),
    ],
)
def test_real_time_mode_starts_from_commits_of_format_2_without_ids_of_state(
    offsets: list[int], commits: list[int], starts: list[int | None]
) -> None:
    verdict = judge(stateless(offsets, commits, version=2))
    assert ways(verdict) == starts
    assert verdict.last_good == (1 if starts == [None] * 3 else max(commits))


def test_plan_that_cannot_be_read_stops_real_time_mode_too_which_would_remove_it() -> None:
    tree = stateless([0, 1, 2], [0, 1], version=2)
    tree.files[f"{ROOT}/offsets/2"] = b""
    verdict = judge(tree)
    assert ways(verdict) == [None, None, None]
    assert verdict.repair is not None and verdict.repair.remove == ["offsets/2"]


def test_plan_after_a_gap_that_cannot_be_read_is_removed_by_a_repair() -> None:
    tree = stateless([0, 1, 6], [0, 1])
    tree.files[f"{ROOT}/offsets/6"] = b""
    verdict = judge(tree)
    assert verdict.repair is not None
    assert (verdict.repair.remove, verdict.repair.plans_anew) == (["offsets/6"], 6)
    assert verdict.repair.goes_on_with == 2


def test_commits_that_say_what_the_sink_is_are_read() -> None:
    sink = ',"sinkMetadataMap":{"0":{"sinkName":"out","provider":"noop"}}'
    assert judge(stateless([0, 1], [0, 1], version=3, ends=sink)).findings == []
    assert not judge(stateless([0, 1], [0, 1], version=3)).restarts, "Spark wants a sink there"


def test_commit_without_ids_is_at_odds_with_state_that_has_them() -> None:
    tree = made.checkpoint(state_format=2)
    tree.files[f"{ROOT}/commits/7"] = b'v2\n{"nextBatchWatermarkMs":0}'
    verdict = judge(tree)
    assert [(finding.path, finding.fault) for finding in verdict.findings] == [("commits/7", Fault.INCONSISTENT)]
    assert (verdict.restarts, verdict.last_good) == (False, 6)


def test_rollback_to_a_batch_after_a_gap_is_for_async_progress() -> None:
    tree = stateless([0, 1, 6, 9], [0, 1, 6, 9])
    assert [judge(tree, batch).last_good for batch in (0, 1, 6)] == [0, 1, 6]
    assert (judge(tree, 6).mode, ways(judge(tree, 6))) == ("async progress", [None, 7, None])
    assert (judge(tree, 1).mode, ways(judge(tree, 1))) == ("ordinary", [2, 2, None])


def test_pruning_keeps_the_offsets_before_a_gap() -> None:
    tree = stateless([0, 1, 6, 9], [0, 1, 6])
    bounds = Retention(batches=1, age_ms=None, bytes=None, now_ms=0, orphan_age_ms=0)
    pruning = plan_pruning(Inspection(tree, read_layout(tree, ROOT)), bounds)
    names = sorted(entry.path.removeprefix(f"{ROOT}/") for entry in pruning.entries)
    assert (pruning.oldest, names) == (6, ["commits/0", "commits/1", "offsets/0"])


@pytest.mark.parametrize("state_format", [1, 2])
def test_query_with_state_is_not_for_async_progress(state_format: int) -> None:
    verdict = judge(made.checkpoint(state_format=state_format))
    assert [start.starts for start in verdict.starts] == [True, False, False]
    assert "with state" in verdict.starts[1].against[0]
    real_time = "reads files" if state_format == 2 else "format 1"
    assert any(real_time in reason for reason in verdict.starts[2].against)
