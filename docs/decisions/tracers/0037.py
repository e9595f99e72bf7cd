import io

from peacefs.protocol.errors import CheckpointDamaged
from peacefs.spark_connector.checkpoints.formats.sst import check_table
from peacefs.spark_connector.checkpoints.layout import LogFiles
from peacefs.spark_connector.checkpoints.tree import TreeEntry

log = LogFiles(
    {number: TreeEntry(f"/{number}", False, 1, 1) for number in (10, 11, 12)},
    {9: TreeEntry("/9.compact", False, 1, 1)},
)
assert [number for number, _ in log.needed()] == [9, 10, 11, 12]
assert [number for number, _ in log.up_to(10).needed()] == [9, 10], "an earlier batch does without 11 and 12"
try:
    check_table(io.BytesIO(b"cut short"), 9)
except CheckpointDamaged as damaged:
    assert "fewer than a table has" in damaged.message
