from peacefs.spark_connector.checkpoints.layout import is_root
from peacefs.spark_connector.checkpoints.formats.operators import location_of

assert is_root(["metadata", "offsets", "commits", "state"])
assert not is_root(["part-00000.parquet", "_spark_metadata"])
assert location_of("webhdfs://here:9870/a/state/0/_stateSchema/default/0_x").file_system == "webhdfs://here:9870"
assert location_of("/a/state/0/_stateSchema/default/0_x").file_system == ""
