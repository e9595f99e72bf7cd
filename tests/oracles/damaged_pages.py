"""Damage as disks cause it, in a file of 4096-byte pages of any format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

PAGE_BYTES = 4096


def flip_a_bit(path: Path, old: bytes, random: Random) -> str:
    """Flip one bit anywhere."""
    data = bytearray(path.read_bytes())
    bit = random.randrange(len(data) * 8)
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)
    return f"bit {bit} flipped"


def zero_a_page(path: Path, old: bytes, random: Random) -> str:
    """Replace one page by zeroes."""
    page = random.choice([page for page in range(_pages(path)) if any(_page(path.read_bytes(), page))])
    _put(path, page, bytes(PAGE_BYTES))
    return f"page {page} zeroed"


def exchange_two_pages(path: Path, old: bytes, random: Random) -> str:
    """Exchange two pages that differ."""
    data = path.read_bytes()
    while True:
        one, other = random.sample(range(_pages(path)), 2)
        if _page(data, one) != _page(data, other):
            break
    _put(path, one, _page(data, other))
    _put(path, other, _page(data, one))
    return f"pages {one} and {other} exchanged"


def put_an_old_page_back(path: Path, old: bytes, random: Random) -> str:
    """Replace one page by its content in `old`, an earlier state of the file."""
    data = path.read_bytes()
    changed = [
        page for page in range(min(_pages(path), len(old) // PAGE_BYTES)) if _page(data, page) != _page(old, page)
    ]
    page = random.choice(changed)
    _put(path, page, _page(old, page))
    return f"page {page} put back"


#: Each changes the file in place and describes the change. The second argument is an earlier state of the file.
DAMAGES: tuple[Callable[[Path, bytes, Random], str], ...] = (
    flip_a_bit,
    zero_a_page,
    exchange_two_pages,
    put_an_old_page_back,
)


def _pages(path: Path) -> int:
    return path.stat().st_size // PAGE_BYTES


def _page(data: bytes, page: int) -> bytes:
    return data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]


def _put(path: Path, page: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(page * PAGE_BYTES)
        file.write(data)
