import tempfile
from pathlib import Path

from peacefs.dataflow.hosts.checkpoint_store import DirectoryCheckpoints
from peacefs.dataflow.hosts.greeting import greet, read_greeting
from peacefs.protocol.errors import ProtocolViolation, RunSuperseded

with tempfile.TemporaryDirectory() as directory:
    older, fence = DirectoryCheckpoints(Path(directory)).begin_run()
    older.record(b"of the older")
    younger, _ = DirectoryCheckpoints(Path(directory)).begin_run()
    assert younger.recorded() == b"of the older"
    try:
        with fence.delivery():
            raise AssertionError("delivered twice")
    except RunSuperseded as refusal:
        assert "has taken over (process" in refusal.message

greeting = greet("node-1", "token", "127.0.0.1:4000")
met = read_greeting(greeting + b"messages", "token", "127.0.0.1:4000")
assert met is not None and met.node == "node-1" and met.length == len(greeting)
for token, address in (("\u00e9", "127.0.0.1:4000"), ("token", "127.0.0.1:4001")):
    try:
        read_greeting(greeting, token, address)
        raise AssertionError("let in")
    except ProtocolViolation:
        pass
