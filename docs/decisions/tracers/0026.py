import tempfile
from pathlib import Path
from random import Random

from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.lost_commits import accept
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.namespace.paths import parse_path
from peacefs.protocol.errors import StartupError

with tempfile.TemporaryDirectory() as directory:
    live, killed = Path(directory) / "live", Path(directory) / "killed"
    live.mkdir()
    killed.mkdir()
    metadata = open_store(live / "metadata.sqlite", owner="me")
    metadata.begin_epoch()
    run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path("/acknowledged"), "me", 0o755, 1))
    for ending in ("", ".commits"):  # All but the log, as a kill and a mishap leave it.
        (killed / f"metadata.sqlite{ending}").write_bytes((live / f"metadata.sqlite{ending}").read_bytes())
    metadata.close()
    try:
        open_store(killed / "metadata.sqlite", owner="me")
    except StartupError as refusal:
        assert "was acknowledged on" in refusal.message
    else:
        raise AssertionError("a store without its commits was opened")
    assert accept(killed / "metadata.sqlite", Random()) is not None
    metadata = open_store(killed / "metadata.sqlite", owner="me")
    assert metadata.reader().gc_floor_held()
    metadata.close()
