"""Runs etcd as a member of a local cluster: `python -m peacefs.client.local_cluster.etcd_process`.

Reports when etcd is ready, and stops it when the launcher ends; etcd has no option for this. One etcd is enough on
one machine, since everything else fails with that machine too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx

from peacefs.service.lifeline import announce, when_parent_dies

_LOOK_S = 0.05
_ASKED_S = 2.0
_HOST = "127.0.0.1"


def find_etcd() -> Path | None:
    """Return the path of etcd: beside this Python, or on the PATH."""
    own = Path(sys.prefix) / "bin" / "etcd"
    found = str(own) if own.exists() else shutil.which("etcd")
    return None if found is None else Path(found)


def main() -> int:
    """Run etcd until it ends; return its exit status."""
    options = _options()
    binary = find_etcd()
    if binary is None:
        sys.stderr.write("etcd is not here any more\n")
        return 1
    process = subprocess.Popen(_command(binary, options))
    stopping = threading.Event()

    def stop() -> None:
        stopping.set()
        process.terminate()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop())
    when_parent_dies(options.parent_fd, stop)
    while process.poll() is None and not _is_healthy(options.port):
        time.sleep(_LOOK_S)
    if process.poll() is None:
        announce(
            options.ready_fd,
            {
                "role": "etcd",
                "pid": os.getpid(),
                "http_host": _HOST,
                "http_port": options.port,
                "node_port": options.peer_port,
            },
        )
    status = process.wait()
    return 0 if stopping.is_set() else status


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--dir", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--peer-port", type=int, required=True)
    parser.add_argument("--ready-fd", type=int)
    parser.add_argument("--parent-fd", type=int)
    return parser.parse_args()


def _command(binary: Path, options: argparse.Namespace) -> list[str]:
    clients, peers = f"http://{_HOST}:{options.port}", f"http://{_HOST}:{options.peer_port}"
    return [
        str(binary),
        *("--name", "local", "--data-dir", str(options.dir)),
        *("--listen-client-urls", clients, "--advertise-client-urls", clients),
        *("--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers),
        *("--initial-cluster", f"local={peers}", "--logger", "zap"),
    ]


def _is_healthy(port: int) -> bool:
    try:
        # There is no TLS to verify, and loading CA certificates takes 20 ms.
        answer = httpx.get(f"http://{_HOST}:{port}/health", timeout=_ASKED_S, trust_env=False, verify=False)
    except httpx.HTTPError:
        return False
    return answer.is_success and answer.json().get("health") == "true"


if __name__ == "__main__":
    sys.exit(main())
