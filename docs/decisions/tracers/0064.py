from peacefs.spark_connector.checkpoints.layout import arrange
from peacefs.spark_connector.checkpoints.start_modes import StartMode, own_mode
from peacefs.spark_connector.checkpoints.tree import TreeEntry
from peacefs.spark_connector.session import as_dict, settings


def mode(*names: str) -> StartMode:
    return own_mode(arrange("/c", [TreeEntry(f"/c/{name}", False, 1, 1) for name in names]), 6)


assert mode("offsets/1", "offsets/6", "commits/1") is StartMode.ASYNC_PROGRESS
assert mode("offsets/1", "offsets/6", "commits/1", "commits/5") is StartMode.ORDINARY, "offsets/5 is lost"
assert not any("FormatVersion" in key for key in as_dict(settings("127.0.0.1:9870")))
