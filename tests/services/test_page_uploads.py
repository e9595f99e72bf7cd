"""Files that are uploaded on the web page, in a real Chromium, and the same request by other clients.

What arrived is read by the client, not by the page.
"""

from __future__ import annotations

import getpass
import json
import random
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.browser import Browser, browser
from support.waiting import wait_until

from peacefs.client.control.token_administration import TokenAdministration
from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.api.uploads import upload_bytes_max

pytestmark = pytest.mark.cluster

_PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True}
_ME = getpass.getuser()
_MIB = 1 << 20


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("audit") / "audit.log"


@pytest.fixture(scope="module")
def cluster(audit: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    options = ("--authentication=token", f"--audit-log={audit}")
    directory = tmp_path_factory.mktemp("uploads")
    with LocalCluster(directory, datanodes=2, port=0, coordinator_options=options) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def tokens(cluster: LocalCluster) -> dict[str, str]:
    with TokenAdministration(f"unix:{cluster.directory / 'coordinator'}") as administration:
        mine = administration.create(_ME, 3600, administrator=True).token
        return {_ME: mine, "ann": administration.create("ann", 3600).token}


@pytest.fixture
def files(cluster: LocalCluster, tokens: dict[str, str]) -> Iterator[PeaceFileSystem]:
    with PeaceFileSystem(cluster.http_address, token=tokens[_ME]) as opened:
        opened.mkdirs("/user/ann")
        opened.set_owner("/user/ann", "ann")
        yield opened


@pytest.fixture(scope="module")
def chrome() -> Iterator[Browser]:
    with browser() as started:
        yield started


def put(cluster: LocalCluster, path: str, token: str, **more: Any) -> httpx.Response:
    address = f"{cluster.http_address}/webhdfs/v1{path}?op=CREATE&data=true&overwrite=false"
    return httpx.put(address, headers={"authorization": f"Bearer {token}"}, timeout=120, **more)


def refusal(answer: httpx.Response) -> str:
    return str(answer.json()["RemoteException"]["message"])


@pytest.mark.parametrize("look", [{}, _PHONE], ids=["desk", "phone"])
def test_page_uploads_a_file_by_the_keyboard(
    chrome: Browser,
    cluster: LocalCluster,
    tokens: dict[str, str],
    files: PeaceFileSystem,
    audit: Path,
    tmp_path: Path,
    look: dict[str, Any],
) -> None:
    name = f"{'phone' if look else 'desk'} & <rows> #1.bin"
    content = random.Random(name).randbytes(20 * _MIB)
    (tmp_path / name).write_bytes(content)
    with chrome.page(f"{cluster.http_address}/ui/#/files/user/ann", fresh=True, **look) as page:
        page.page.on("filechooser", lambda chooser: chooser.set_files(tmp_path / name))
        page.expect("401")
        page.page.get_by_label("Token").fill(tokens["ann"])
        page.page.get_by_role("button", name="Enter").click()
        begin = page.page.get_by_role("button", name="Upload a file")
        begin.focus()
        page.page.keyboard.press("Enter")
        assert page.page.evaluate("document.activeElement.type") == "file"
        page.page.keyboard.press("Escape")
        assert page.page.evaluate("document.activeElement.textContent") == "Upload a file"
        page.page.keyboard.press("Enter")
        page.page.keyboard.press("Enter")
        # The browser's own dialog, which the keyboard has opened, is answered by the test.
        chosen = "document.querySelector('input[type=file]').files.length"
        wait_until(lambda: page.page.evaluate(chosen) == 1, "a file is chosen")
        assert page.faults() == []
        width, window = page.page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
        assert width <= window, "it is wider than the window"
        page.page.keyboard.press("Tab")
        page.page.keyboard.press("Enter")
        page.see(f"/user/ann/{name} is there: 20.0 MiB.")
        page.page.get_by_role("link", name=name).wait_for()
        assert files.read(f"/user/ann/{name}") == content
        assert files.status(f"/user/ann/{name}").owner == "ann"
        # What is there is not replaced.
        page.expect("403")
        page.page.keyboard.press("Enter")
        (tmp_path / name).write_bytes(b"other")
        page.page.locator("input[type=file]").set_input_files(tmp_path / name)
        page.page.get_by_role("button", name="Upload it").click()
        page.page.get_by_role("alert").get_by_text("exists").wait_for()
        assert files.status(f"/user/ann/{name}").length == len(content)

    def audited() -> list[tuple[Any, ...]]:
        lines = [json.loads(line) for line in audit.read_text().splitlines()]
        told = [each for each in lines if (each.get("src") or "").endswith(name)]
        return [(each["cmd"], each["ugi"], each["error"]) for each in told]

    wait_until(lambda: len([each for each in audited() if each[0] == "CREATE"]) == 2, "both are recorded")
    assert ("CREATE", "ann", None) in audited() and ("CREATE", "ann", "FileAlreadyExists") in audited()


def test_upload_is_refused_as_any_other_write(
    cluster: LocalCluster, tokens: dict[str, str], files: PeaceFileSystem
) -> None:
    files.mkdirs("/closed", 0o755)
    assert put(cluster, "/closed/file", tokens["ann"], content=b"x").status_code == 403
    assert put(cluster, "/user/ann/file", "no token", content=b"x").status_code == 401
    assert not files.exists("/closed/file") and not files.exists("/user/ann/file")
    # The datanode asks for the caller, too: without the header there is none.
    done = put(cluster, "/user/ann/file", tokens["ann"], content=b"")
    assert (done.status_code, files.read("/user/ann/file")) == (201, b"")


def test_upload_without_a_length_or_over_the_limit_is_refused_before_a_file_is_made(
    cluster: LocalCluster, tokens: dict[str, str], files: PeaceFileSystem
) -> None:
    unknown = put(cluster, "/user/ann/unknown", tokens["ann"], content=iter([b"x"]))
    assert unknown.status_code == 400 and "Content-Length" in refusal(unknown)
    host, port = cluster.http_address.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.sendall(
            b"PUT /webhdfs/v1/user/ann/long?op=CREATE&data=true HTTP/1.1\r\nhost: localhost\r\n"
            b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n"
            % (tokens["ann"].encode(), upload_bytes_max + 1)
        )
        said = client.recv(65536)
        while b"over the limit" not in said:
            more = client.recv(65536)
            assert more, said
            said += more
    assert said.startswith(b"HTTP/1.1 400 ")
    assert not files.exists("/user/ann/unknown") and not files.exists("/user/ann/long")


def test_upload_that_breaks_off_leaves_no_file_and_its_place_is_free_again(
    cluster: LocalCluster, tokens: dict[str, str], files: PeaceFileSystem
) -> None:
    host, port = cluster.http_address.removeprefix("http://").split(":")
    head = (
        b"PUT /webhdfs/v1/user/ann/half-%d?op=CREATE&data=true HTTP/1.1\r\nhost: localhost\r\n"
        b"authorization: Bearer %b\r\ncontent-length: %d\r\n\r\n"
    )
    clients = []
    for number in range(2):
        client = socket.create_connection((host, int(port)), timeout=60)
        client.sendall(head % (number, tokens["ann"].encode(), 32 * _MIB) + bytes(12 * _MIB))
        clients.append(client)
    # Two uploads of one address are under way; a third has to wait.
    wait_until(
        lambda: "being uploaded" in put(cluster, "/user/ann/third", tokens["ann"], content=b"x").text,
        "the third is refused",
    )
    for client in clients:
        client.close()
    wait_until(
        lambda: put(cluster, f"/user/ann/next-{random.random()}", tokens["ann"], content=b"x").status_code == 201,
        "there is a place again",
    )
    assert {each.name for each in files.list("/user/ann") if each.name.startswith("half")} == set()
