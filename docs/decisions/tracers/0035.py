import pyarrow as pa

from peacefs.dataflow.core.ha_input import HAInput
from peacefs.dataflow.core.ha_output import HAOutput
from peacefs.dataflow.hosts.wire import MessageReader, encode
from peacefs.dataflow.model.row_stage import RowStage

rows = pa.record_batch({"n": pa.array(range(1000), pa.int64())})
reader = MessageReader({"numbers": rows.schema})


def over_the_wire(message):
    (arrived,) = reader.feed(b"".join(bytes(part) for part in encode(message)))
    return arrived


producer = HAOutput("numbers", {"unit": RowStage.SAFE})
for _ in range(10):
    producer.emit(rows)

# A consumer that takes 16,000 bytes at a time: the producer stops when they are sent.
consumer = HAInput("numbers", "unit", incarnation=1, credit_bytes=16_000)
answer = producer.subscribe("node-1", over_the_wire(consumer.subscribe(0.0, 1, retry_s=1.0)))
consumer.subscribed(over_the_wire(answer))
sent = [message for _, message in producer.due()]
assert [(message.batch.first, message.batch.last) for message in sent] == [(1, 1000), (1001, 2000)]
for message in sent:
    consumer.accept(over_the_wire(message))
assert list(producer.due()) == []
consumer.take()
producer.credit(over_the_wire(consumer.credit()))
assert [message.batch.first for _, message in producer.due()] == [2001]

# The consumer is lost with all that it had, but for a checkpoint at row 500; another asks from there.
again = HAInput(
    "numbers", "unit", incarnation=2, position=consumer.processed._replace(number=500), credit_bytes=1 << 20
)
answer = producer.subscribe("node-2", over_the_wire(again.subscribe(0.0, 1, retry_s=1.0)))
again.subscribed(over_the_wire(answer))
for node, message in producer.due():
    assert node == "node-2" and again.accept(over_the_wire(message))
numbers = [number for _ in range(10) for number in again.take().rows.column("n").to_pylist()]
assert len(numbers) == 9500 and again.processed.number == 10_000

# The first one is not listened to any more.
assert producer.subscribe("node-1", consumer.subscribe(9.0, 2, retry_s=1.0)) is None
