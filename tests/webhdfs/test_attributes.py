"""Extended attributes over WebHDFS and in our client, exactly as in HDFS where stock clients depend on it."""

from __future__ import annotations

import re
from urllib.parse import quote

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.coordinator.namespace.attributes import attribute_bytes_max
from peacefs.protocol.errors import PathError
from peacefs.protocol.values.attribute_values import Encoding, decode, encode

ILLEGAL = "org.apache.hadoop.HadoopIllegalArgumentException"
IO = "java.io.IOException"


@pytest.fixture
def home(names, request):
    """Return a directory for this test."""
    path = "/attributes-" + re.sub(r"\W+", "-", request.node.name)
    assert names.ask("PUT", path, "MKDIRS").json == {"boolean": True}
    return path


def put(names, path, name, value, flag="CREATE,REPLACE"):
    return names.ask("PUT", path, "SETXATTR", xattr_name=name, xattr_value=value, flag=flag)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('"quoted"', b"quoted"),
        ("plain", b"plain"),
        ("0x00ff", b"\0\xff"),
        ("0sAP8=", b"\0\xff"),
        ('""', b""),
        ("", b""),
    ],
)
def test_value_has_the_encodings_of_hadoop(text, value):
    assert decode(text) == value


@pytest.mark.parametrize("value", [b"", b"text", b'with "quotes"', "ümläut".encode()])
def test_value_survives_its_encodings(value):
    for encoding in Encoding:
        assert decode(encode(value, encoding)) == value


def test_attributes_are_set_shown_and_removed(names, home):
    done = put(names, home, "user.colour", '"blue"')
    assert (done.status, done.body) == (200, b"")
    put(names, home, "USER.bits", "0x00ff")
    put(names, home, "user.empty", "")
    for encoding, colour in (("text", '"blue"'), ("HEX", "0x626c7565"), ("base64", "0sYmx1ZQ==")):
        shown = names.ask("GET", home, "GETXATTRS", encoding=encoding, xattr_name="user.colour")
        assert shown.json == {"XAttrs": [{"name": "user.colour", "value": colour}]}
    assert names.ask("GET", home, "LISTXATTRS").json == {"XAttrNames": '["user.bits","user.colour","user.empty"]'}
    both = names.served.request(
        "GET",
        f"/webhdfs/v1{quote(home)}?op=GETXATTRS&encoding=hex&xattr.name=user.bits&xattr.name=user.empty",
    )
    assert both.json == {
        "XAttrs": [{"name": "user.bits", "value": "0x00ff"}, {"name": "user.empty", "value": None}]
    }
    assert names.ask("PUT", home, "REMOVEXATTR", xattr_name="user.bits").status == 200
    assert names.ask("GET", home, "GETXATTRS", xattr_name="user.bits").error == (
        403,
        IO,
        "At least one of the attributes provided was not found.",
    )


@pytest.mark.parametrize(
    ("query", "status", "kind", "words"),
    [
        ({"xattr_name": "user.a", "xattr_value": "0xabc", "flag": "CREATE"}, 403, IO, "user.a cannot be read"),
        ({"xattr_name": "user.a", "xattr_value": "v"}, 400, ILLEGAL, "A flag must be specified."),
        ({"xattr_name": "user.a", "flag": "MAYBE"}, 400, "IllegalArgumentException", "XAttrSetFlag.MAYBE"),
        ({"xattr_value": "v", "flag": "CREATE"}, 400, "IllegalArgumentException", '"xattr.name": it is missing'),
        ({"xattr_name": "colour", "flag": "CREATE"}, 400, ILLEGAL, "must be prefixed with user/trusted"),
        ({"xattr_name": "user.a", "flag": "REPLACE"}, 403, IO, "The CREATE flag must be specified."),
        ({"xattr_name": "raw.a", "flag": "CREATE"}, 403, "AccessControlException", "permission for xattr: raw.a"),
        (
            {"xattr_name": "user.a", "xattr_value": "x" * attribute_bytes_max, "flag": "CREATE"},
            400,
            ILLEGAL,
            "The XAttr is too big",
        ),
    ],
)
def test_bad_attribute_is_refused_with_hdfss_exception_in_one_line(names, home, query, status, kind, words):
    refused = names.ask("PUT", home, "SETXATTR", **query).error
    assert refused[0] == status and refused[1].endswith(kind)
    assert words in refused[2] and "\n" not in refused[2]
    assert names.ask("GET", home, "GETXATTRS").json == {"XAttrs": []}


def test_encoding_that_there_is_not_is_named(names, home):
    assert names.ask("GET", home, "GETXATTRS", encoding="rot13").error[0] == 400


def test_longest_attribute_fits_a_url(names, home):
    value = bytes(range(256)) * (attribute_bytes_max // 256)
    value = value[: attribute_bytes_max - 1]
    assert put(names, home, "user.a", encode(value, Encoding.HEX)).status == 200
    (shown,) = names.ask("GET", home, "GETXATTRS", encoding="hex").json["XAttrs"]
    assert decode(shown["value"]) == value


def test_snapshots_attributes_are_shown_and_cannot_be_changed(names, home):
    put(names, home, "user.a", "was")
    names.ask("PUT", home, "ALLOWSNAPSHOT")
    names.ask("PUT", home, "CREATESNAPSHOT", snapshotname="s")
    put(names, home, "user.a", "is")
    past = f"{home}/.snapshot/s"
    assert names.ask("GET", past, "GETXATTRS").json["XAttrs"] == [{"name": "user.a", "value": '"was"'}]
    assert put(names, past, "user.a", "x").error[:2] == (
        403,
        "org.apache.hadoop.hdfs.protocol.SnapshotAccessControlException",
    )
    compared = names.ask("GET", home, "GETSNAPSHOTDIFF", oldsnapshotname="s").json["SnapshotDiffReport"]
    assert compared["diffList"] == [{"sourcePath": "", "type": "MODIFY"}]


def test_repeated_change_gets_the_first_answer(names, home):
    asked = {"xattr_name": "user.a", "xattr_value": "v", "flag": "CREATE", "requestid": "once-and-again"}
    for _ in range(2):
        assert names.ask("PUT", home, "SETXATTR", **asked).status == 200
    for _ in range(2):
        removed = names.ask("PUT", home, "REMOVEXATTR", xattr_name="user.a", requestid="once-removed")
        assert removed.status == 200


def test_our_client_keeps_any_bytes(names, home):
    with PeaceFileSystem(f"http://127.0.0.1:{names.port}", user="ann") as files:
        path = f"{home}/mine"
        files.mkdirs(path)
        values = {"user.bytes": bytes(range(256)), "user.empty": b"", "user.ümläut": b"+ %&="}
        for name, value in values.items():
            files.xattrs.set(path, name, value)
        assert files.xattrs.get(path) == values
        with pytest.raises(PathError, match="already exists"):
            files.xattrs.set(path, "user.empty", b"x", flags=["CREATE"])
        files.xattrs.remove(path, "user.empty")
        with pytest.raises(PathError, match="No matching attributes"):
            files.xattrs.remove(path, "user.empty")
