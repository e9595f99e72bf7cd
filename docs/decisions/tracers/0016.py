from peacefs.protocol.checksums import block_checksums, verify_blocks
from peacefs.protocol.errors import ChecksumMismatch

stored = block_checksums(b"x" * 100_000)
rotten = b"x" * 70_000 + b"y" + b"x" * 29_999
try:
    verify_blocks(rotten, stored, "what the reader got")
except ChecksumMismatch as fault:
    assert "the block at 65536" in fault.message
else:
    raise AssertionError("the reader hands out what nobody has verified")
