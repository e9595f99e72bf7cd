import asyncio

from peacefs.coordinator.calls.name_table import NAME_TABLE
from peacefs.coordinator.calls.webhdfs_requests import parse_request
from peacefs.protocol.messages import Mkdirs
from peacefs.service.first_step import begin


async def story():
    fired = asyncio.Event()

    async def call(waits):
        if waits:
            await fired.wait()
        return "answer"

    assert begin(call(waits=False)) == "answer", "no task, no turn of the loop"
    waiting = begin(call(waits=True))
    fired.set()
    return await waiting


assert asyncio.run(story()) == "answer"
scope = {"type": "http", "method": "PUT", "raw_path": b"/webhdfs/v1/a", "headers": []}
request = parse_request({**scope, "query_string": b"op=MKDIRS&user.name=ann&permission=700&requestid=r"})
assert request.asked == Mkdirs("/a", "ann", permission=0o700, request_id="r"), "the message of our own client"
assert NAME_TABLE[Mkdirs].forms[0].name == "MKDIRS"
