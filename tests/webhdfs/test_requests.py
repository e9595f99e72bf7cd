"""The parsers of both sides: every URL is a request or a named error, and nothing is lost."""

from __future__ import annotations

import contextlib
import re
import string
from urllib.parse import quote, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peacefs.coordinator.calls.name_row import NameRequest
from peacefs.coordinator.calls.webhdfs_requests import OPERATIONS, parse_request
from peacefs.protocol.errors import AccessDenied, BadRequest, PathError, PathLimitExceeded, Unsupported
from peacefs.protocol.messages import ChangeTimes, NameCall, RenamePath
from peacefs.protocol.new_file import NewFile
from peacefs.protocol.webhdfs.query import is_webhdfs
from peacefs.protocol.webhdfs.redirects import ReadFile, WriteFile, location, parse_redirected
from peacefs.protocol.webhdfs.requests import Create, Open, Request

PARAMETERS = [
    "user.name",
    "doas",
    "offset",
    "length",
    "overwrite",
    "permission",
    "unmaskedpermission",
    "replication",
    "blocksize",
    "createparent",
    "createflag",
    "destination",
    "renameoptions",
    "recursive",
    "modificationtime",
    "accesstime",
    "owner",
    "group",
    "fsaction",
    "startafter",
    "noredirect",
    "excludedatanodes",
    "token",
    "first",
    "namenoderpcaddress",
    "delegation",
]
OPS = [op for ops in OPERATIONS.values() for op in ops]


def scope(method: str, raw_path: bytes, query: bytes) -> dict[str, object]:
    return {"type": "http", "method": method, "raw_path": raw_path, "query_string": query, "headers": []}


def ask(method: str, op: str, query: str = "", path: str = "/f") -> Request | NameCall:
    request = parse_request(scope(method, f"/webhdfs/v1{path}".encode(), f"op={op}&{query}".encode()))
    return request.asked if isinstance(request, NameRequest) else request


values = st.one_of(
    st.text(max_size=8),
    st.integers(-(2**70), 2**70).map(str),
    st.sampled_from(["true", "FALSE", "rwx", "755", "1777", "NONE", "OVERWRITE", "null", "", "/a/b", "%00"]),
)
encoded = values.map(lambda value: quote(value, safe="").encode()) | st.binary(max_size=12)
queries = st.lists(st.tuples(st.sampled_from(PARAMETERS), encoded), max_size=6)
paths = st.text(max_size=12).map(lambda path: quote(path).encode()) | st.binary(max_size=12)


@given(
    method=st.sampled_from(["GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS"]),
    op=st.sampled_from(OPS) | st.text(string.printable, max_size=6),
    query=queries,
    path=paths,
)
def test_any_url_is_a_request_or_a_named_error(method, op, query, path):
    pairs = [b"op=" + quote(op).encode(), *(name.encode() + b"=" + value for name, value in query)]
    asked = scope(method, b"/webhdfs/v1/" + path, b"&".join(pairs))
    assert is_webhdfs(asked)
    for parse, result in ((parse_request, (Request, NameRequest)), (parse_redirected, (WriteFile, ReadFile))):
        with contextlib.suppress(BadRequest, Unsupported, AccessDenied, PathError):
            assert isinstance(parse(asked), result)


@given(path=st.text(min_size=1).filter(lambda text: all(not 0xD800 <= ord(char) < 0xE000 for char in text)))
def test_an_encoded_path_comes_back_as_it_was(path):
    assert ask("GET", "OPEN", path="/" + quote(path, safe="")).path == "/" + path


@given(
    path=st.text(max_size=40).filter(lambda text: all(not 0xD800 <= ord(char) < 0xE000 for char in text)),
    token=st.text(string.ascii_letters + string.digits + "-_", min_size=1),
    offset=st.integers(0, 2**63 - 1),
    length=st.none() | st.integers(0, 2**63 - 1),
)
def test_redirect_of_the_name_side_is_read_by_the_data_side(path, token, offset, length):
    sent = (
        WriteFile("/" + path, token, "chunk-token", "coordinator:9870"),
        ReadFile("/" + path, token, offset, length),
    )
    for wanted, method in zip(sent, ("PUT", "GET"), strict=True):
        url = urlsplit(location(wanted, "http", "datanode", 9864))
        assert url.netloc == "datanode:9864"
        assert url.query, "Hadoop's client appends &offset=N to whatever it got"
        assert parse_redirected(scope(method, url.path.encode(), url.query.encode())) == wanted


def test_an_ipv6_datanode_stands_in_brackets():
    assert location(ReadFile("/f", "t", 0, None), "http", "::1", 80).startswith("http://[::1]:80/webhdfs/v1/f?")


def test_a_redirect_that_no_server_would_take_is_refused_where_it_is_made():
    with pytest.raises(PathLimitExceeded, match="too long for the URL"):
        location(ReadFile("/" + "ü" * 8000, "t" * 40000, 0, None), "http", "datanode", 80)


def test_an_odd_host_header_gets_into_no_url():
    assert "evil" not in WriteFile("/f", "token", "first", "evil/../?x=&op=DELETE").query


def test_defaults_are_those_of_hdfs():
    assert ask("PUT", "CREATE") == Create(
        path="/f",
        user="dr.who",
        exclude=frozenset(),
        direct=False,
        file=NewFile(
            path="/f",
            user="dr.who",
            overwrite=False,
            permission=0o644,
            replication=0,
            block_bytes=0,
            create_parent=True,
        ),
    )
    assert ask("GET", "OPEN") == Open("/f", "dr.who", frozenset(), False, 0, None)
    assert ask("PUT", "RENAME", "destination=/g") == RenamePath(
        "/f", "dr.who", target="/g", overwrite=False, is_legacy=True, request_id=""
    )
    assert ask("PUT", "SETTIMES", "modificationtime=-1") == ChangeTimes(
        "/f", "dr.who", modified_ms=None, accessed_ms=None, request_id=""
    )


def test_create_parameters_of_hadoops_client_are_understood():
    """The query is that of Spark 4.3's bundled client, with its order of parameters."""
    asked = ask(
        "PUT",
        "CREATE",
        "user.name=spark&blocksize=134217728&buffersize=4096&createflag=&createparent=true&overwrite=true"
        "&permission=644&replication=3&unmaskedpermission=666&excludedatanodes=10.0.0.1:9864,10.0.0.2:9864",
    )
    assert isinstance(asked, Create)
    assert (asked.file.user, asked.file.overwrite, asked.file.permission) == ("spark", True, 0o644)
    assert (asked.file.replication, asked.file.block_bytes) == (3, 134217728)
    assert asked.exclude == {"10.0.0.1:9864", "10.0.0.2:9864"}


def test_create_flags_stand_for_overwrite():
    flagged = ask("PUT", "CREATE", "createflag=CREATE,overwrite&createparent=false")
    assert isinstance(flagged, Create)
    assert flagged.file.overwrite and not flagged.file.create_parent


@pytest.mark.parametrize(
    ("user", "accepted"),
    [("alice", True), ("_svc-1.a$", True), ("", True), ("1alice", False), ("a b", False), ("a$b", False)],
)
def test_users_follow_hdfss_pattern(user, accepted):
    if accepted:
        assert ask("GET", "LISTSTATUS", f"user.name={quote(user)}").user == (user or "dr.who")
    else:
        with pytest.raises(BadRequest, match=r"user\.name"):
            ask("GET", "LISTSTATUS", f"user.name={quote(user)}")


@given(
    st.text(max_size=12) | st.text("ab c\\/@-é", min_size=250, max_size=260),
    st.sampled_from(["owner", "group", "user.name"]),
)
def test_names_of_users_and_groups_are_one_line_of_some_length(name, parameter):
    op = "SETOWNER" if parameter != "user.name" else "LISTSTATUS"
    others = "" if parameter == "user.name" else "owner=o&" if parameter == "group" else "group=g&"
    breaks = re.search(r"[\x00-\x1f\x7f-\x9f\u2028\u2029:]", name) is not None
    is_wrong, asked, said = breaks or len(name) > 255, None, ""
    try:
        asked = ask("PUT" if op == "SETOWNER" else "GET", op, f"{others}{parameter}={quote(name, safe='')}")
    except BadRequest as refusal:
        said = refusal.message
    if asked is None:
        assert is_wrong or parameter == "user.name", "HDFS's pattern for users is narrower"
        assert len(said.splitlines()) == 1 and len(said) < 500, said
    else:
        assert not is_wrong
        taken = asked.user if parameter == "user.name" else getattr(asked, parameter)
        assert taken == (name or ("dr.who" if parameter == "user.name" else None))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("a\nb", r"the owner 'a\\nb' contains '\\n'; names of users and groups have no colons"),
        ("a\0", r"contains '\\x00'"),
        ("a:b", "contains ':'"),
        ("a\u2028b", "contains"),
        ("x" * 5000, "has 5000 characters; at most 255 are allowed"),
    ],
)
def test_user_name_that_no_account_has_is_refused_with_the_reason(name, words):
    with pytest.raises(BadRequest, match=words):
        ask("PUT", "SETOWNER", f"owner={quote(name)}")
    if "\n" not in name:
        with pytest.raises(BadRequest):
            ask("GET", "LISTSTATUS", f"user.name={quote(name)}")


def test_names_that_directory_services_give_are_taken():
    asked = ask("PUT", "SETOWNER", f"owner={quote('alice/host@REALM.COM')}&group={quote('Domain Users')}")
    assert (asked.owner, asked.group) == ("alice/host@REALM.COM", "Domain Users")
