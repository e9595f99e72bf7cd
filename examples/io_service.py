"""A unit of a stream processor that keeps its state in pages, checkpoints it, and is restored.

peacefs up                                     # in another terminal
python examples/io_service.py [http://127.0.0.1:9870]
"""

from __future__ import annotations

import os
import sys

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.io_service import IOService

PAGE_BYTES = 64 * 1024


def main(address: str) -> None:
    state = [bytearray(os.urandom(PAGE_BYTES)) for _ in range(500)]
    with PeaceFileSystem(address) as files:
        service = IOService(files, workers=4, keep=2)
        first = max(service.sequences("example"), default=0) + 1
        for sequence in range(first, first + 3):
            state[sequence % len(state)][:] = os.urandom(PAGE_BYTES)
            published = service.write("example", sequence, state)
            print(f"{published.path}: {published.length} bytes; pruned {list(published.pruned)}")
        restored = service.read("example")
        assert restored.pages == state
        print(f"restored {len(restored.pages)} pages of checkpoint {restored.sequence}")


if __name__ == "__main__":
    main(*(sys.argv[1:] or ["http://127.0.0.1:9870"]))
