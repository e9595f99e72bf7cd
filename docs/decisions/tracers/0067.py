import tempfile
from pathlib import Path
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.protocol.errors import StartupError

with tempfile.TemporaryDirectory() as directory:
    store = Path(directory) / "metadata.sqlite"
    open_store(store, owner="me").close()
    data = bytearray(store.read_bytes())
    data[data.index(b"supergroup") + 2] ^= 1
    store.write_bytes(data)
    try:
        open_store(store, owner="me")
    except StartupError as refusal:
        assert "is not what was written" in refusal.message
    else:
        raise AssertionError("a damaged store was opened")
