from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.coordinator.calls.webhdfs_requests import parse_request
from peacefs.coordinator.operations.waiters import NOTHING_TO_WAIT_FOR
from peacefs.protocol.messages import Mkdirs


async def call():
    await NOTHING_TO_WAIT_FOR
    return "answer"


try:
    call().send(None)
except StopIteration as done:
    assert done.value == "answer", "no task, no event loop"
else:
    raise AssertionError("it waits")
scope = {"type": "http", "method": "PUT", "raw_path": b"/webhdfs/v1/a", "headers": []}
request = parse_request({**scope, "query_string": b"op=MKDIRS&user.name=ann&permission=700&requestid=r"})
assert request.asked == Mkdirs("/a", "ann", permission=0o700, request_id="r"), "the message of our own client"
assert NAME_TABLE[Mkdirs].forms[0].name == "MKDIRS"
