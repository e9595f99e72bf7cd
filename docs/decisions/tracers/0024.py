import tempfile
from pathlib import Path
from peacefs.coordinator.metadata.sqlite import image
from peacefs.coordinator.namespace import operations as namespace
from peacefs.coordinator.metadata.group_commit import run_now
from peacefs.coordinator.metadata.sqlite.store import open_store
from peacefs.coordinator.namespace.paths import parse_path

whole_log_pages, image._CHECKPOINT_PAGES = image._CHECKPOINT_PAGES, 50
try:
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "metadata.sqlite"
        metadata = open_store(store, owner="me")
        metadata.begin_epoch()
        for number in range(60):  # 5 pages and more each
            run_now(metadata, lambda tx: namespace.mkdirs(tx, parse_path(f"/d{number}"), "me", 0o755, 1))
            metadata.catch_up()
        assert store.with_name(store.name + "-wal").stat().st_size < 100 * 4096
        metadata.close()
finally:
    image._CHECKPOINT_PAGES = whole_log_pages
