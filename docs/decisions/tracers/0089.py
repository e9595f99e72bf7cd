"""Decision 89: a body goes on to the datanode of the redirect, with the client's credential, and its answer comes back."""

import asyncio

from peacefs.coordinator.api.uploads import Uploads, has_data
from peacefs.protocol.webhdfs.answers import empty_answer


def asked(length):
    query = b"op=CREATE&data=true"
    headers = [(b"content-length", b"%d" % length), (b"authorization", b"Bearer mine")]
    return {
        "method": "PUT",
        "raw_path": b"/webhdfs/v1/f",
        "query_string": query,
        "headers": headers,
        "client": None,
    }


async def main():
    seen = []

    async def datanode(reader, writer):
        head = await reader.readuntil(b"\r\n\r\n")
        seen.extend((head, await reader.readexactly(6)))
        writer.write(b"HTTP/1.1 201 Created\r\n\r\n")
        writer.close()

    server = await asyncio.start_server(datanode, "127.0.0.1", 0)
    place = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/webhdfs/v1/f?op=CREATE&token=t"
    body = iter([b"abc", b"def"])

    async def receive():
        piece = next(body)
        return {"type": "http.request", "body": piece, "more_body": piece != b"def"}

    async def redirecting(scope):
        return empty_answer(307, location=place)

    uploads = Uploads(None, bytes_max=6)
    assert has_data(asked(6)) and not has_data(asked(6) | {"query_string": b"op=CREATE"})
    assert (await uploads.answer(asked(6), receive, redirecting)).status == 201
    assert seen[1] == b"abcdef" and b"authorization: Bearer mine" in seen[0] and b"token=t" in seen[0]
    assert (await uploads.answer(asked(7), receive, redirecting)).status == 400
    server.close()


asyncio.run(main())
