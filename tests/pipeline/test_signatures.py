"""Signatures of tokens and receipts, and the cost of signing among busy threads."""

from __future__ import annotations

import base64
import hashlib
import hmac
import sys
import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.protocol.errors import AccessDenied
from peacefs.protocol.tokens import ChunkRead, FileRead, FileVersion, Signer


@given(secret=st.binary(min_size=1, max_size=200), path=st.text(max_size=3000))
def test_a_token_bears_hmac_sha256_under_a_key_of_its_own(secret, path):
    text = Signer(secret).sign(FileRead(1e12, path, 7, "u", FileVersion([], 0)))
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    key = hmac.digest(secret, b"peacefs token", hashlib.sha256)
    assert raw[-16:] == hmac.digest(key, raw[:-16], hashlib.sha256)[:16]
    assert Signer(secret).verify(text, FileRead, 0.0).path == path


def test_a_receipt_is_for_exactly_one_replica():
    signer = Signer(b"a secret")
    receipt = signer.receipt("n1", 1, 2, 3, 4)
    signer.verify_receipt(receipt, 1, 2, 3, 4)
    for other in ((9, 2, 3, 4), (1, 9, 3, 4), (1, 2, 9, 4), (1, 2, 3, 9)):
        with pytest.raises(AccessDenied, match="does not verify"):
            signer.verify_receipt(receipt, *other)


def test_signing_waits_for_no_busy_thread():
    """It keeps the interpreter lock: releasing it among busy threads costs a whole switch interval."""
    signer, stop = Signer(b"a secret"), threading.Event()
    text = signer.sign(ChunkRead(1e12, 5))

    def spin():
        while not stop.is_set():
            pass

    interval_s = sys.getswitchinterval()
    busy = threading.Thread(target=spin)
    busy.start()
    sys.setswitchinterval(0.05)
    try:
        began = time.process_time()
        for number in range(40):
            signer.receipt("n1", number, 2, 3, 4)
            signer.verify_even_late(text, ChunkRead)
        took_s = time.process_time() - began
    finally:
        sys.setswitchinterval(interval_s)
        stop.set()
        busy.join()
    assert took_s < 1.0, "80 signatures with a hand-over each let the busy thread have 4 s"
