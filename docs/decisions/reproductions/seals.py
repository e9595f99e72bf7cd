"""What it costs to seal a record: `python docs/decisions/reproductions/seals.py`, the quickest of five turns."""

import hashlib
import hmac
import os
import time
from collections.abc import Callable

from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.poly1305 import Poly1305

KEY = os.urandom(32)
_blake = hashlib.blake2b(key=KEY, digest_size=16)
_hmac = hmac.new(KEY, digestmod=hashlib.sha256)
_gmac = AESGCM(KEY[:16])
_BYTES_A_TURN = 20 << 20


def blake2b(data: memoryview, _nonce: bytes) -> bytes:
    seal = _blake.copy()
    seal.update(data)
    return seal.digest()


def hmac_sha256(data: memoryview, _nonce: bytes) -> bytes:
    seal = _hmac.copy()
    seal.update(data)
    return seal.digest()[:16]


def poly1305(data: memoryview, _nonce: bytes) -> bytes:
    """With one key; a real one needs another for every record."""
    return Poly1305.generate_tag(KEY, data)


def aes_gmac(data: memoryview, nonce: bytes) -> bytes:
    return _gmac.encrypt(nonce, b"", data)


def microseconds(seal: Callable[[memoryview, bytes], bytes], data: memoryview) -> float:
    turns = max(1, min(20_000, _BYTES_A_TURN // len(data)))
    best = float("inf")
    for _ in range(5):
        began_s = time.perf_counter()
        for number in range(turns):
            seal(data, number.to_bytes(12, "big"))
        best = min(best, (time.perf_counter() - began_s) / turns)
    return best * 1e6


def main() -> None:
    for size in (200, 16 << 10, 256 << 10):
        data = memoryview(os.urandom(size))
        for seal in (blake2b, hmac_sha256, poly1305, aes_gmac):
            took = microseconds(seal, data)
            print(f"{size:7} bytes  {seal.__name__:12} {took:7.2f} us  {size / took / 1000:6.2f} GB/s")


if __name__ == "__main__":
    main()
