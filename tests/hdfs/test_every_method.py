"""Every method with well-formed requests of any content: an answer, or a refusal of one line. Prints its seed."""

from __future__ import annotations

import getpass
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from support.hadoop_rpc import HadoopRpc, RemoteError, address_of
from support.long_runs import often

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.hdfs.method_table import PROTOCOLS
from peacefs.protocol.hadoop.namenode_pb2 import MsyncResponseProto

pytestmark = pytest.mark.cluster
_TEXTS = (
    "",
    "/",
    "/a",
    "/a/b",
    "/b",
    "a",
    "/../x",
    "//",
    "/" + "y" * 300,
    "/.snapshot/s",
    "s1",
    "ann",
    "ü",
    "a,b",
    "/\0",
)
_NUMBERS = (0, 1, 2, 3, 511, 0o1777, (1 << 31) - 1)
_LARGE = (0, 1, 5, 1 << 20, (1 << 62), (1 << 63) - 1, (1 << 64) - 1)
_TIMES = often(12, 300)


def filled(message: Message, rng: random.Random, depth: int = 0) -> Message:
    """Fill in all fields that are required, and some of the others."""
    for field in message.DESCRIPTOR.fields:
        if not field.is_required and rng.random() < 0.5:
            continue
        count = rng.randrange(4) if field.is_repeated else 1
        if field.type == FieldDescriptor.TYPE_MESSAGE:
            if depth > 4:
                continue
            for _ in range(count):
                held = getattr(message, field.name)
                part = held.add() if field.is_repeated else held
                part.SetInParent()
                filled(part, rng, depth + 1)
            continue
        values = [_value(field, rng) for _ in range(count)]
        if field.is_repeated:
            getattr(message, field.name).extend(values)
        else:
            setattr(message, field.name, values[0])
    return message


def _value(field: FieldDescriptor, rng: random.Random) -> object:
    match field.type:
        case FieldDescriptor.TYPE_STRING:
            return rng.choice(_TEXTS)
        case FieldDescriptor.TYPE_BYTES:
            return rng.choice((b"", b"x", b"\xff\xfe", b"3/name"))
        case FieldDescriptor.TYPE_BOOL:
            return rng.random() < 0.5
        case FieldDescriptor.TYPE_ENUM:
            assert field.enum_type is not None
            return rng.choice(field.enum_type.values).number
        case FieldDescriptor.TYPE_UINT64:
            return rng.choice(_LARGE)
        case FieldDescriptor.TYPE_INT64 | FieldDescriptor.TYPE_SINT64:
            return rng.choice((-1, 0, 1, (1 << 63) - 1, -(1 << 63)))
        case _:
            return rng.choice(_NUMBERS)


def outcome(rpc: HadoopRpc, protocol: str, name: str, request: Message) -> str:
    try:
        rpc.call(name, request, MsyncResponseProto, protocol=protocol)
    except RemoteError as refused:
        return str(refused)
    except Exception as fault:
        raise AssertionError(f"{name}: {request}") from fault
    return "java.lang.Object"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[LocalCluster]:
    """Yield a cluster of its own, because the requests change the root, too."""
    with LocalCluster(tmp_path / "c", datanodes=1, port=0) as cluster:
        yield cluster


def test_no_request_has_an_internal_error_for_an_answer(cluster: LocalCluster) -> None:
    seed = int(os.environ.get("PEACEFS_SEED", random.randrange(1 << 32)))
    print(f"seed {seed}")
    rng = random.Random(seed)
    address = address_of(cluster.hdfs_uri)
    wanted = [(protocol, name, method) for protocol in PROTOCOLS for name, method in PROTOCOLS[protocol].items()]
    with HadoopRpc(*address, getpass.getuser()) as first, HadoopRpc(*address, "ann") as second:
        for _ in range(_TIMES):
            rng.shuffle(wanted)
            for protocol, name, method in wanted:
                request = filled(method.request(), rng)
                if name == "delete" and getattr(request, "src", "") in ("/", "//"):
                    continue
                told = outcome(rng.choice((first, second)), protocol, name, request)
                assert told.startswith(("java.", "org.apache.hadoop.")), f"{name}: {request}: {told}"
                assert "internal error" not in told and "\n" not in told, f"{name}: {request}: {told}"
