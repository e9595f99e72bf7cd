import tempfile
from pathlib import Path

from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.protocol.errors import RunSuperseded

with tempfile.TemporaryDirectory() as directory:
    older, fence = DirectoryCheckpoints(Path(directory)).begin_run()
    older.record(b"of the older")
    younger, _ = DirectoryCheckpoints(Path(directory)).begin_run()
    assert younger.recorded() == b"of the older"
    try:
        with fence.delivery():
            raise AssertionError("delivered twice")
    except RunSuperseded as refusal:
        assert "has taken over (process" in refusal.message
