"""Replace the Python process that a JVM starts: `python -IS worker_stub.py SOCKET ARGUMENTS...`.

It lets `prepared_workers` fork the requested program, with its own pipes, variables and directory, and ends with
that program. It imports almost nothing.
"""

import json
import os
import socket
import sys


def main(path: str, words: list[str]) -> None:
    if words[:1] != ["-m"]:
        os.execv(sys.executable, [sys.executable, *words])
    umask = os.umask(0)
    request = {"words": words, "environment": dict(os.environ), "umask": umask}
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
        connection.connect(path)
        socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
        # The pipes now belong to the fork.
        null = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(null, number)
        connection.recv(1)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
