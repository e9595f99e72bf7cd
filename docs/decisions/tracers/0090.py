import tempfile
from pathlib import Path

from peacefs.spark_connector.checkpoints.repartitioning import RepartitionRequest, repartition_locally

PLAN = 'v1\n{"conf":{"spark.sql.shuffle.partitions":"%d"}}\n0'
seen = []


def unfinished(uri: str, settings: dict[str, str]) -> None:
    seen.append(uri)
    (Path(uri.removeprefix("file:")) / "offsets/1").write_text(PLAN % 5)
    raise KeyboardInterrupt


with tempfile.TemporaryDirectory() as directory:
    root = Path(directory) / "orders"
    for name, text in {
        "metadata": '{"id":"407ea541-22d9-4e7a-a17b-05a2fb1787ee"}',
        "offsets/0": PLAN % 2,
        "commits/0": 'v1\n{"nextBatchWatermarkMs":0}',
        "state/0/_metadata/metadata": "v1\n{}",
    }.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    try:
        repartition_locally(RepartitionRequest(str(root), 5, 0), unfinished)
    except KeyboardInterrupt:
        assert seen != [f"file:{root}"], "Spark works on a copy"
    assert [path.name for path in (root / "offsets").iterdir()] == ["0"], "the root is as it was"
    assert [path.name for path in Path(directory).iterdir()] == ["orders"]
