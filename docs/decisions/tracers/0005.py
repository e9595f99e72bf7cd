import asyncio, tempfile
from pathlib import Path
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.metadata.group_commit import GroupCommit
from peacefs.coordinator.metadata.writer import Writer
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace.paths import parse_path


def stop(fault):
    raise SystemExit(f"the disk failed: {fault}")


async def story(store):
    loop = asyncio.get_running_loop()
    metadata = open_store(store, owner="me")
    metadata.begin_epoch()
    commits = GroupCommit(metadata, stop, run=Writer(loop.call_soon_threadsafe), soon=loop.call_soon)

    def make(path):
        settled = loop.create_future()
        commits.submit(lambda tx: namespace.mkdirs(tx, parse_path(path), "me", 0o755, 1))
        commits.wait_for(commits.last, settled.set_result)
        return settled

    first = make("/first")
    while metadata.rows.ops:  # Until the thread writes the first entry.
        await asyncio.sleep(0)
    waiting = [make(f"/d{n}") for n in range(20)]
    try:
        commits.submit(lambda tx: 1 // 0)
    except ZeroDivisionError:
        pass
    assert not any(each.done() for each in waiting), "changed, and not durable"
    assert await asyncio.gather(first, *waiting) == [None] * 21
    assert commits.requests == 21 and commits.commits == 2
    commits.close()
    metadata.close()


with tempfile.TemporaryDirectory() as directory:
    asyncio.run(story(Path(directory) / "metadata.sqlite"))
