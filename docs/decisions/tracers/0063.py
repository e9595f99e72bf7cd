import sys

sys.path.insert(0, "tests")
from support.checkpoints import ROOT, checkpoint

from peacefs.spark_connector.checkpoints.catalogue import read_layout
from peacefs.spark_connector.checkpoints.inspection import Inspection
from peacefs.spark_connector.checkpoints.repartitions import repartition_of

tree = checkpoint(batches=8)
plan = tree.files[f"{ROOT}/offsets/7"]
tree.files[f"{ROOT}/offsets/8"] = plan.replace(b'partitions": "2"', b'partitions": "4"')
inspection = Inspection(tree, read_layout(tree, ROOT))
assert (repartition_of(inspection, 7), repartition_of(inspection, 8)) == (None, 4)
