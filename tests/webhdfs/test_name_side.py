"""The coordinator's answers to a WebHDFS client, exactly as in HDFS where stock clients depend on it."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlsplit

import pytest

from peacefs.coordinator.api import webhdfs
from peacefs.coordinator.calls import name_table

JAVA = {"user-agent": "Java/17.0.15"}
NOT_FOUND = "java.io.FileNotFoundException"
ILLEGAL = "java.lang.IllegalArgumentException"
UNSUPPORTED = "java.lang.UnsupportedOperationException"
IO = "java.io.IOException"
NAME_TOO_LONG = "org.apache.hadoop.hdfs.protocol.FSLimitException$PathComponentTooLongException"
ACCESS = "org.apache.hadoop.security.AccessControlException"
AUTHORIZATION = "org.apache.hadoop.security.authorize.AuthorizationException"


@pytest.fixture
def home(names, request):
    """Return a directory for this test."""
    path = f"/home/{request.node.name.partition('[')[0]}"
    assert names.ask("PUT", path, "MKDIRS").json == {"boolean": True}
    return path


# -- statuses and listings -----------------------------------------------------------------------------


def test_a_status_has_every_field_that_the_client_reads(names, home):
    reply = names.ask("GET", home, "GETFILESTATUS")
    status = reply.json["FileStatus"]
    assert reply.status == 200
    assert status | {"accessTime": 0, "modificationTime": 0, "fileId": 0} == {
        "pathSuffix": "",
        "type": "DIRECTORY",
        "length": 0,
        "owner": "dr.who",
        "group": status["group"],
        "permission": "755",
        "accessTime": 0,
        "modificationTime": 0,
        "blockSize": 0,
        "replication": 0,
        "fileId": 0,
        "storagePolicy": 0,
    }
    assert status["modificationTime"] > 1_700_000_000_000
    assert names.ask("GET", home, "GETFILELINKSTATUS").json == reply.json


def test_missing_path_is_a_404_with_javas_exception(names):
    status, kind, message = names.ask("GET", "/nowhere", "GETFILESTATUS").error
    assert (status, kind) == (404, NOT_FOUND)
    assert "/nowhere" in message


def test_a_listing_holds_children_by_name_and_a_missing_directory_is_a_404(names, home):
    for name in ("b", "a", "c"):
        names.ask("PUT", f"{home}/{name}", "MKDIRS")
    listed = names.ask("GET", home, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
    assert [status["pathSuffix"] for status in listed] == ["a", "b", "c"]
    assert names.ask("GET", f"{home}/a", "LISTSTATUS").json == {"FileStatuses": {"FileStatus": []}}
    assert names.ask("GET", f"{home}/missing", "LISTSTATUS").error[:2] == (404, NOT_FOUND)


def test_a_batch_begins_after_a_name(names, home):
    for name in ("a", "b", "c"):
        names.ask("PUT", f"{home}/{name}", "MKDIRS")
    listing = names.ask("GET", home, "LISTSTATUS_BATCH", startafter="a").json["DirectoryListing"]
    assert listing["remainingEntries"] == 0
    batch = listing["partialListing"]["FileStatuses"]["FileStatus"]
    assert [status["pathSuffix"] for status in batch] == ["b", "c"]


def test_a_long_listing_comes_whole_and_in_order_page_by_page(names, home, monkeypatch):
    for door in (webhdfs, name_table):
        monkeypatch.setattr(door, "list_page_entries", 100)
    wanted = [f"{number:05d}" for number in range(250)]

    def make(name):
        assert names.ask("PUT", f"{home}/{name}", "MKDIRS").json == {"boolean": True}

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(make, wanted))
    reply = names.ask("GET", home, "LISTSTATUS")
    listed = [status["pathSuffix"] for status in reply.json["FileStatuses"]["FileStatus"]]
    assert listed == wanted
    assert reply.headers["transfer-encoding"] == "chunked"
    batch = names.ask("GET", home, "LISTSTATUS_BATCH").json["DirectoryListing"]
    assert len(batch["partialListing"]["FileStatuses"]["FileStatus"]) == 100
    assert batch["remainingEntries"] == 150


# -- what is answered from memory ------------------------------------------------------------------------


def test_server_defaults_are_numbers_that_the_client_casts(names):
    defaults = names.ask("GET", "/", "GETSERVERDEFAULTS").json["FsServerDefaults"]
    assert set(defaults) == {
        "blockSize",
        "bytesPerChecksum",
        "checksumType",
        "fileBufferSize",
        "replication",
        "trashInterval",
        "writePacketSize",
    }
    assert all(type(value) is int for value in defaults.values())


def test_home_and_trash_follow_the_user(names):
    assert names.ask("GET", "/", "GETHOMEDIRECTORY", user_name="alice").json == {"Path": "/user/alice"}
    assert names.ask("GET", "/", "GETTRASHROOT", user_name="alice").json == {"Path": "/user/alice/.Trash"}
    assert names.ask("GET", "/", "GETHOMEDIRECTORY").json == {"Path": "/user/dr.who"}
    with_token = names.served.request("GET", "/webhdfs/v1/?op=GETHOMEDIRECTORY&delegation=abc")
    assert with_token.json == {"Path": "/user/dr.who"}


# -- changes -----------------------------------------------------------------------------------------


def test_mkdirs_makes_parents_and_may_be_repeated(names, home):
    for _ in range(2):
        assert names.ask("PUT", f"{home}/x/y/z", "MKDIRS", permission="700").json == {"boolean": True}
    assert names.ask("GET", f"{home}/x/y/z", "GETFILESTATUS").json["FileStatus"]["permission"] == "700"


def test_rename_with_options_answers_nothing_or_an_error(names, home):
    for name in ("a", "b"):
        names.ask("PUT", f"{home}/{name}", "MKDIRS")
    taken = names.ask("PUT", f"{home}/a", "RENAME", destination=f"{home}/b", renameoptions="NONE")
    assert taken.error[:2] == (403, "org.apache.hadoop.fs.FileAlreadyExistsException")
    done = names.ask("PUT", f"{home}/a", "RENAME", destination=f"{home}/c", renameoptions="NONE")
    assert (done.status, done.body, done.headers["content-length"]) == (200, b"", "0")
    missing = names.ask("PUT", f"{home}/nix", "RENAME", destination=f"{home}/d", renameoptions="NONE")
    assert missing.error[:2] == (404, NOT_FOUND)
    over = names.ask("PUT", f"{home}/c", "RENAME", destination=f"{home}/b", renameoptions="overwrite")
    assert (over.status, over.body) == (200, b"")


def test_rename_without_options_answers_true_or_false(names, home):
    names.ask("PUT", f"{home}/a", "MKDIRS")
    assert names.ask("PUT", f"{home}/a", "RENAME", destination=f"{home}/b").json == {"boolean": True}
    assert names.ask("PUT", f"{home}/a", "RENAME", destination=f"{home}/c").json == {"boolean": False}


def test_delete_answers_true_false_or_not_empty(names, home):
    names.ask("PUT", f"{home}/tree/leaf", "MKDIRS")
    refused = names.ask("DELETE", f"{home}/tree", "DELETE")
    assert refused.error[:2] == (403, "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException")
    assert names.ask("DELETE", f"{home}/tree", "DELETE", recursive="true").json == {"boolean": True}
    assert names.ask("DELETE", f"{home}/tree", "DELETE", recursive="true").json == {"boolean": False}


def test_times_permission_owner_and_replication_are_set(names, home):
    def status():
        return names.ask("GET", home, "GETFILESTATUS").json["FileStatus"]

    for op, parameters in (
        ("SETTIMES", {"modificationtime": 1234, "accesstime": 5678}),
        ("SETPERMISSION", {"permission": "1777"}),
        ("SETOWNER", {"owner": "alice", "group": "staff"}),
    ):
        reply = names.ask("PUT", home, op, **parameters)
        assert (reply.status, reply.body) == (200, b"")
    changed = status()
    assert (changed["modificationTime"], changed["permission"]) == (1234, "1777")
    assert (changed["owner"], changed["group"]) == ("alice", "staff")
    assert names.ask("PUT", home, "SETREPLICATION", replication=2).json == {"boolean": False}
    assert names.ask("PUT", home, "SETOWNER").error == (400, ILLEGAL, "Both owner and group are empty.")


def test_summary_and_access_of_a_tree(names, home):
    names.ask("PUT", f"{home}/tree/leaf", "MKDIRS")
    assert names.ask("GET", f"{home}/tree", "GETCONTENTSUMMARY").json == {
        "ContentSummary": {
            "directoryCount": 2,
            "ecPolicy": "",
            "fileCount": 0,
            "length": 0,
            "quota": -1,
            "spaceConsumed": 0,
            "spaceQuota": -1,
        }
    }
    assert names.ask("GET", home, "CHECKACCESS", fsaction="r-x").status == 200
    assert names.ask("GET", home, "CHECKACCESS", fsaction="read").error[:2] == (400, ILLEGAL)
    assert names.ask("GET", f"{home}/nix", "CHECKACCESS", fsaction="r--").error[:2] == (404, NOT_FOUND)


# -- the way to the data -------------------------------------------------------------------------------


def test_create_redirects_to_a_datanode_with_all_that_it_needs(names, home):
    path = f"{home}/über & co+?#%41.txt"
    reply = names.ask("PUT", path, "CREATE", overwrite="true", permission="640", user_name="alice")
    assert (reply.status, reply.body, reply.headers["content-length"]) == (307, b"", "0")
    url = urlsplit(reply.headers["location"])
    assert (url.scheme, url.netloc) == ("http", "127.0.0.1:9864")
    assert url.path.isascii() and " " not in url.path
    query = parse_qs(url.query)
    assert query["op"] == ["CREATE"] and query["token"] and query["first"]
    assert query["namenoderpcaddress"] == [f"127.0.0.1:{names.port}"]
    assert names.ask("GET", path, "GETFILESTATUS").status == 404


def test_noredirect_gives_the_url_in_json(names, home):
    reply = names.ask("PUT", f"{home}/f", "CREATE", noredirect="true")
    assert reply.status == 200
    assert reply.json["Location"].startswith(f"http://127.0.0.1:9864/webhdfs/v1{home}/f?op=CREATE&token=")


@pytest.mark.parametrize("how", [{}, {"noredirect": "true"}])
def test_create_says_what_a_block_size_becomes(names, home, how):
    cut = names.ask("PUT", f"{home}/f", "CREATE", blocksize=128 * 1024 * 1024, **how)
    assert cut.headers["warning"].startswith(
        '299 peacefs "the block size is 67108864 bytes in place of 134217728: '
    )
    for whole in ({}, {"blocksize": 1024 * 1024}):
        assert "warning" not in names.ask("PUT", f"{home}/f", "CREATE", **whole, **how).headers


def test_create_with_a_body_at_the_first_step_is_redirected_without_waiting_for_it(names, home):
    with names.served.connect() as wire:
        wire.sendall(
            f"PUT /webhdfs/v1{home}/f?op=CREATE HTTP/1.1\r\nhost: x\r\ncontent-length: 1000000\r\n\r\n".encode()
        )
        assert wire.recv(65536).startswith(b"HTTP/1.1 307 ")
        # The body may still come; the connection remains usable.
        wire.sendall(bytes(1_000_000) + b"GET /webhdfs/v1/?op=GETHOMEDIRECTORY HTTP/1.1\r\nhost: x\r\n\r\n")
        assert wire.recv(65536).endswith(b'{"Path":"/user/dr.who"}')


def test_create_refuses_what_completion_would_refuse(names, home):
    assert names.ask("PUT", home, "CREATE").error[:2] == (
        403,
        "org.apache.hadoop.fs.FileAlreadyExistsException",
    )
    missing = names.ask("PUT", f"{home}/no/f", "CREATE", createparent="false")
    assert missing.error[:2] == (404, NOT_FOUND)


def test_a_create_that_excludes_the_only_datanode_says_so(names, home):
    reply = names.ask("PUT", f"{home}/f", "CREATE", excludedatanodes="127.0.0.1:9864,127.0.0.1:1")
    status, kind, message = reply.error
    assert (status, kind) == (403, IO)
    assert "1 excluded" in message


def test_open_of_a_directory_is_a_404_as_in_hdfs(names, home):
    assert names.ask("GET", home, "OPEN").error[:2] == (404, NOT_FOUND)
    assert names.ask("GET", f"{home}/nix", "OPEN").error[:2] == (404, NOT_FOUND)


# -- the label ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["/", "/nowhere"], ids=["answer", "error"])
@pytest.mark.parametrize(
    ("headers", "labelled"),
    [
        ({}, True),
        ({"user-agent": "curl/8"}, True),
        (JAVA, False),
        ({"X-Hadoop-Accept-EZ": "true"}, False),
    ],
    ids=["nobody", "curl", "java", "hadoop"],
)
def test_json_is_labelled_for_all_but_hadoops_client(names, path, headers, labelled):
    reply = names.ask("GET", path, "GETFILESTATUS", headers=headers)
    assert reply.headers.get("content-type") == ("application/json" if labelled else None)
    assert int(reply.headers["content-length"]) == len(reply.body)
    assert reply.json


# -- refusals ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "target", "kind", "words"),
    [
        ("GET", "/?op=NONSENSE", ILLEGAL, 'Invalid value for webhdfs parameter "op": No enum constant '),
        ("GET", "/?op=GET_BLOCKS", ILLEGAL, "GetOpParam.Op.GET_BLOCKS"),
        ("GET", "/", ILLEGAL, '"op": it is missing'),
        ("PUT", "/?op=LISTSTATUS", ILLEGAL, "LISTSTATUS is asked with GET"),
        ("GET", "/?op=MKDIRS", ILLEGAL, "GetOpParam.Op.MKDIRS; MKDIRS is asked with PUT"),
        ("PATCH", "/?op=MKDIRS", ILLEGAL, "MKDIRS is asked with PUT"),
        ("POST", "/f?op=SETACL", ILLEGAL, "PostOpParam.Op.SETACL; SETACL is asked with PUT"),
        ("PUT", "/f?op=SETECPOLICY&ecpolicy=RS-6-3-1024k", UNSUPPORTED, "policy RS-6-3-1024k is not supported"),
        ("GET", "/f?op=OPEN&offset=-1", ILLEGAL, '"offset": Invalid parameter range: offset = -1 < 0'),
        ("GET", "/f?op=OPEN&offset=x", ILLEGAL, '"offset": Failed to parse "x" as a radix-10 long integer.'),
        ("GET", "/f?op=OPEN&offset=99999999999999999999", ILLEGAL, "Failed to parse"),
        ("GET", "/f?op=OPEN&length=-5", ILLEGAL, "length = -5 < 0"),
        ("PUT", "/f?op=MKDIRS&permission=2000", ILLEGAL, "permission = 2000 > 1777"),
        ("PUT", "/f?op=MKDIRS&permission=9", ILLEGAL, 'Failed to parse "9" as a radix-8 short integer.'),
        ("PUT", "/f?op=CREATE&overwrite=maybe", ILLEGAL, 'Failed to parse "maybe" to Boolean.'),
        ("PUT", "/f?op=CREATE&replication=0", ILLEGAL, "replication = 0 < 1"),
        ("PUT", "/f?op=CREATE&replication=1000", "java.io.IOException", "exceeds maximum of 512 for /f"),
        ("PUT", "/f?op=CREATE&createflag=create,shine", ILLEGAL, "CreateFlag.SHINE"),
        ("PUT", "/f?op=CREATE&createflag=append", UNSUPPORTED, "op=APPEND"),
        ("PUT", "/f?op=RENAME", ILLEGAL, '"destination": it is missing'),
        ("PUT", "/f?op=RENAME&destination=g", ILLEGAL, "not absolute"),
        ("PUT", "/f?op=RENAME&destination=/g&renameoptions=MAYBE", ILLEGAL, "Rename.MAYBE"),
        ("GET", "/?op=LISTSTATUS&user.name=a/b", ILLEGAL, '"user.name"'),
        ("GET", "/?op=LISTSTATUS&user.name=a&doas=b", AUTHORIZATION, "User: a is not allowed to impersonate b"),
        ("GET", "/a/../b?op=GETFILESTATUS", ILLEGAL, "'.' and '..'"),
        ("GET", "/a/%2e%2e/b?op=GETFILESTATUS", ILLEGAL, "'.' and '..'"),
        ("GET", "/a%00b?op=GETFILESTATUS", ILLEGAL, "Invalid path name"),
        ("GET", "/a%ffb?op=GETFILESTATUS", ILLEGAL, '"path": it is not UTF-8'),
        ("GET", "/a%zzb?op=GETFILESTATUS", ILLEGAL, '"path": an escape'),
        ("GET", "/a?op=GETFILESTATUS&x=%g0", ILLEGAL, '"x": an escape'),
        ("PUT", f"/{'n' * 256}?op=MKDIRS", NAME_TOO_LONG, "is exceeded: limit=255 length=256"),
        (
            "GET",
            f"/{'n' * 60000}?op=GETFILESTATUS",
            "java.io.IOException",
            "Pathname too long.  Limit 8000 characters",
        ),
        ("PUT", "/a:b?op=MKDIRS", ILLEGAL, "colon"),
    ],
)
def test_malformed_parameter_is_named(names, method, target, kind, words):
    status, java_class, message = names.served.request(method, f"/webhdfs/v1{target}").error
    assert status == (403 if kind in (ACCESS, AUTHORIZATION, NAME_TOO_LONG, "java.io.IOException") else 400)
    assert java_class.endswith(kind)
    assert words in message


def test_a_route_that_is_not_there_is_an_error_and_another_service_is_not_ours(names):
    assert names.served.request("GET", "/webhdfs/v2/f?op=LISTSTATUS").error[:2] == (400, ILLEGAL)
    assert names.served.request("GET", "/webhdfs?op=LISTSTATUS").error[:2] == (400, ILLEGAL)
    for other in ("/", "/v1/status", "/webhdfsx/v1/?op=LISTSTATUS"):
        assert names.served.request("GET", other).body == b"REST"


def test_names_are_taken_literally_after_one_decoding(names, home):
    for name in ("with space", "100%", "%41", "a+b", "ünïcödé", "semi;colon", "a&b=c?d#e", "new\nline"):
        assert names.ask("PUT", f"{home}/{name}", "MKDIRS").json == {"boolean": True}
        listed = names.ask("GET", home, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
        assert [status["pathSuffix"] for status in listed] == [name]
        assert names.ask("PUT", f"{home}/{name}", "RENAME", destination=f"{home}/x").json == {"boolean": True}
        assert names.ask("PUT", f"{home}/x", "RENAME", destination=f"{home}/{name}").json == {"boolean": True}
        assert names.ask("DELETE", f"{home}/{name}", "DELETE").json == {"boolean": True}


def test_operations_and_parameters_have_no_case_and_the_first_of_a_repeated_one_counts(names, home):
    reply = names.served.request("PUT", f"/webhdfs/v1{home}/x?OP=mkDirs&Permission=700&permission=711&&&flag")
    assert reply.json == {"boolean": True}
    assert names.ask("GET", f"{home}/x", "getfilestatus").json["FileStatus"]["permission"] == "700"


def test_a_plus_is_a_space_in_a_parameter_and_itself_in_a_path(names, home):
    reply = names.served.request("PUT", f"/webhdfs/v1{home}/a+b?op=MKDIRS")
    assert reply.json == {"boolean": True}
    moved = names.served.request("PUT", f"/webhdfs/v1{home}/a+b?op=RENAME&destination={home}/c+d")
    assert moved.json == {"boolean": True}
    listed = names.ask("GET", home, "LISTSTATUS").json["FileStatuses"]["FileStatus"]
    assert [status["pathSuffix"] for status in listed] == ["c d"]


def test_a_bug_is_a_remote_exception_that_tells_nothing_and_is_logged(names, monkeypatch, caplog):
    async def broken(*_arguments):
        raise KeyError("secret detail")

    monkeypatch.setattr(names.files.names, "status", broken)
    reply = names.ask("GET", "/", "GETFILESTATUS", headers=JAVA)
    status, kind, message = reply.error
    assert (status, kind) == (500, IO)
    assert "secret" not in message and b"Traceback" not in reply.body
    assert "secret detail" in caplog.text


def test_a_listing_that_fails_in_the_middle_does_not_look_whole(names, monkeypatch):
    page = names.served.run(names.files.names.list_page("/", "x", None, 1))

    async def failing(path, user, start_after, limit, *, remaining_max):
        assert remaining_max == 1, "a page before the next need not count them all"
        if start_after is not None:
            raise FileNotFoundError
        return type(page)(page.entries * 1000, 5)

    monkeypatch.setattr(names.files.names, "list_page", failing)
    with names.served.connect() as wire:
        wire.sendall(b"GET /webhdfs/v1/?op=LISTSTATUS HTTP/1.1\r\nhost: x\r\n\r\n")
        received = b""
        while piece := wire.recv(1 << 20):
            received += piece
    assert received.startswith(b"HTTP/1.1 200 ")
    assert not received.endswith(b"0\r\n\r\n")
    with pytest.raises(json.JSONDecodeError):
        json.loads(received.partition(b"\r\n\r\n")[2])
