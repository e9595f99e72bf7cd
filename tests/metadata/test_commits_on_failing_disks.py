"""Group commit on a full or failing disk: refused changes leave no trace, and no answer comes too early."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
from journal.replicated_store import rows_of
from support.long_runs import often

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.log.segments import LogFull
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import MetadataFault, MetadataFull
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import ServiceUnready

from .group_commits import Group, mkdirs, names


@pytest.fixture
def group() -> Group:
    return Group()


# -- no room -----------------------------------------------------------------------------------------


@pytest.mark.evidence("coordinator-disk-full")
def test_on_a_full_disk_changes_are_undone_newest_first_until_there_is_room(group: Group) -> None:
    """Changes that came during the write of the refused entry may depend on it, so they are undone, too."""
    group.mkdirs("/before")
    group.writing.turn()
    before = rows_of(group.metadata)
    entries = group.metadata.rows.number
    group.log.fails = LogFull("no room")
    group.mkdirs("/refused")
    group.writing.begin()
    group.mkdirs("/refused/below")
    group.submit(lambda tx: namespace.delete(tx, parse_path("/before"), True, 2), "delete")
    group.mkdirs("/more")
    assert names(group.metadata) == ["more", "refused"]
    group.writing.write()()
    assert group.told.unready == ["/refused", "/refused/below", "delete", "/more"]
    refusal = group.told.outcomes["/refused"]
    assert refusal is not None and refusal.retriable and "disk is full" in str(refusal)
    assert names(group.metadata) == ["before"] and rows_of(group.metadata) == before
    assert not any(group.metadata.rows.changed) and group.metadata.rows.number == entries
    assert group.room == [False]
    group.log.fails = None
    group.told.outcomes.clear()
    group.mkdirs("/after")
    group.writing.turn()
    assert group.told.well == ["/after"] and group.room == [False, True]
    assert group.submit(lambda tx: tx.entry_count(1), "count") == 2
    assert group.faults == [] and group.rows_of_log() == rows_of(group.metadata)


def test_short_change_that_still_fits_on_a_full_disk_does_not_end_the_alarm(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group.metadata, "_free_bytes", lambda: 0)
    group.log.fails = LogFull("no room")
    group.mkdirs("/" + 200 * "x")
    group.writing.turn()
    group.log.fails = None
    group.mkdirs("/short")
    group.writing.turn()
    assert group.told.well == ["/short"] and group.room == [False]
    group.mkdirs("/" + 250 * "y")
    group.writing.turn()
    assert group.room == [False, True]


def test_full_disk_is_met_by_who_commits_at_once_while_an_entry_waits_to_be_written(group: Group) -> None:
    """The waiting entry was undone. It is not written later, even if there is room then."""
    group.mkdirs("/refused")
    group.writing.begin()
    group.log.fails = LogFull("no room")
    with pytest.raises(MetadataFull):
        run_now(group.metadata, mkdirs("/now"))
    assert group.told.unready == ["/refused"]
    group.log.fails = None
    group.mkdirs("/after")
    group.writing.turn()
    assert group.told.well == ["/after"] and group.faults == []
    assert names(group.metadata) == ["after"] and group.rows_of_log() == rows_of(group.metadata)


@pytest.mark.evidence("coordinator-disk-full")
@pytest.mark.parametrize("seed", range(often(15, 300)))
def test_on_a_full_disk_memory_is_what_the_log_says_whatever_was_under_way(seed: int) -> None:
    random, group = Random(seed), Group()
    done: set[str] = set()
    for number in range(40):
        group.log.fails = LogFull("no room") if random.random() < 0.3 else None
        for step in range(random.randrange(4)):
            directory = random.choice(["/a", "/b", f"/{number}"])
            name = f"{directory}/{step}"
            if random.random() < 0.3:
                group.commits.submit(lambda tx, d=directory: namespace.delete(tx, parse_path(d), True, 2))  # type: ignore[misc]
            else:
                group.commits.submit(mkdirs(name))
                group.commits.wait_for(
                    group.commits.last, lambda outcome, n=name: done.add(n) if outcome is None else None
                )  # type: ignore[misc]
        random.choice([group.writing.begin, group.writing.turn])()
        if random.random() < 0.2:
            group.metadata.tend(idle=True)
    group.log.fails = None
    group.writing.turn()
    group.commits.close()
    assert group.faults == [] and done
    assert group.rows_of_log() == rows_of(group.metadata)
    for table, rows in enumerate(group.metadata.rows.changed):
        assert not rows, table


# -- a disk that fails ---------------------------------------------------------------------------------


@pytest.mark.evidence("coordinator-disk-fails", "answers-survive-kill")
@pytest.mark.parametrize("error", [OSError(errno.EIO, "no"), OSError(errno.EROFS, "no"), ValueError("ours")])
def test_a_disk_that_fails_is_fatal_and_nothing_is_acknowledged_afterwards(group: Group, error: Exception) -> None:
    group.mkdirs("/before")
    group.writing.turn()
    durable = group.rows_of_log()
    group.log.fails = error
    group.mkdirs("/during")
    group.writing.begin()
    group.mkdirs("/behind")
    group.writing.turn()
    assert group.told.well == ["/before"] and group.told.unready == ["/during", "/behind"]
    assert all("stopping" in str(outcome) for outcome in group.told.outcomes.values() if outcome)
    group.log.fails = None
    with pytest.raises(ServiceUnready):
        group.mkdirs("/after")
    with pytest.raises(MetadataFault):
        run_now(group.metadata, mkdirs("/after"))
    group.commits.close()
    group.metadata.close()
    assert len(group.faults) == 1
    assert group.rows_of_log() == durable, "a sync that succeeds after one that failed tells nothing"


def test_an_image_that_cannot_be_told_stops_the_coordinator_after_the_answer(
    group: Group, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOMEM, "no process")

    monkeypatch.setattr(group.metadata.keeper, "durable", fail)
    group.mkdirs("/a")
    group.writing.turn()
    assert group.told.well == ["/a"] and len(group.faults) == 1


@pytest.mark.evidence("answers-survive-kill", "coordinator-disk-fails")
@pytest.mark.parametrize("call", ["pwrite", "fdatasync", "fsync", "rename"])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_nothing_is_told_whichever_call_of_the_log_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    """Let the n-th call fail, for each n. Everything that was acknowledged is there at the next start."""
    for after in range(4):
        path = tmp_path / str(after) / "metadata.sqlite"
        path.parent.mkdir()
        metadata = open_store(path, owner="root")
        metadata.begin_epoch()
        metadata._log.close()  # type: ignore[attr-defined]
        metadata._log._at = metadata._log._size  # type: ignore[attr-defined]
        left = [after]

        def failing(*arguments: Any, true: Any, left: list[int] = left) -> Any:
            left[0] -= 1
            if left[0] == -1:
                raise OSError(code, os.strerror(code))
            return true(*arguments)

        told: list[str] = []
        with monkeypatch.context() as patched:
            of: Any = Path if call == "rename" else os
            true = getattr(of, call)
            patched.setattr(of, call, lambda *arguments, true=true: failing(*arguments, true=true))
            for name in "abc":
                try:
                    run_now(metadata, mkdirs(f"/{name}"))
                    told.append(name)
                except MetadataFull:
                    assert code in (errno.ENOSPC, errno.EDQUOT) and call != "fdatasync"
                    assert name not in names(metadata)
                except MetadataFault:
                    break
        copy = tmp_path / f"copy-{after}" / "metadata.sqlite"
        copy.parent.mkdir()
        for file in path.parent.iterdir():
            if not file.name.endswith((".lock", "-shm")):
                (copy.parent / file.name).write_bytes(file.read_bytes())
        metadata.close()
        started = open_store(copy, owner="root")
        # The change with the unknown outcome may be there.
        assert names(started)[: len(told)] == told and len(names(started)) <= len(told) + 1
        started.close()


_FULL = """
import sys
from pathlib import Path
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.log import segments
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.metadata.store import MetadataFull
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path

segments.log_segment_bytes = 1 << 18
metadata = open_store(Path(sys.argv[1]) / "metadata.sqlite", owner="root")
metadata.begin_epoch()
done = refused = 0
for number in range(20_000):
    try:
        path = parse_path(f"/{number:0200}")
        run_now(metadata, lambda tx: namespace.mkdirs(tx, path, "ann", 0o755, 1))
        done += 1
    except MetadataFull:
        refused += 1
        if refused == 3:
            break
names = metadata.reader().names_after(1, "", 10000)
print(done, refused, len(names))
metadata.close()
"""


@pytest.mark.evidence("coordinator-disk-full")
def test_a_real_disk_that_is_full_refuses_and_keeps_what_it_told(tmp_path: Path) -> None:
    """Uses a small tmpfs in a mount namespace. Skipped if that is not permitted."""
    script = tmp_path / "full.py"
    script.write_text(_FULL)
    disk = tmp_path / "disk"
    disk.mkdir()
    kept = tmp_path / "kept"
    run = (
        f"mount -t tmpfs -o size=3m none {disk} && {sys.executable} {script} {disk}; "
        f"mkdir {kept} && cp {disk}/metadata.sqlite* {kept}"
    )
    made = subprocess.run(["unshare", "-rm", "sh", "-c", run], capture_output=True, text=True, timeout=120)
    if "unshare" in made.stderr or "mount:" in made.stderr:
        pytest.skip("no mount namespaces here")
    done, refused, seen = map(int, made.stdout.split())
    assert refused == 3 and done == seen and 100 < done < 20_000
    metadata = open_store(kept / "metadata.sqlite", owner="root")
    assert len(metadata.reader().names_after(1, "", 10_000)) == done
    metadata.close()
