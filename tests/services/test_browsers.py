"""A web page in a user's browser cannot change or read this machine's cluster.

Tested with a real Chromium if installed, and always with requests as a browser sends them.
"""

from __future__ import annotations

import functools
import getpass
import http.client
import http.server
import shutil
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from peacefs.client.filesystem import PeaceFileSystem
from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.coordinator.api.rest.docs_page import POLICY

pytestmark = pytest.mark.cluster
_CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
_BROWSER = {"User-Agent": "Mozilla/5.0 (X11; Linux x86_64) Chrome/140.0"}
_PAGE = """\
<!doctype html><body><iframe name="sink"></iframe><pre id="seen"></pre>
<form id="form" method="post" target="sink" action="http://TARGET/webhdfs/v1/victim?op=TRUNCATE&newlength=0&user.name=USER">
</form><script>
const seen = [];
async function attempt(what, url, options) {
  try { const got = await fetch(url, options); seen.push(what + " " + got.type + " " + await got.text()); }
  catch (error) { seen.push(what + " refused by the browser"); }
}
(async () => {
  document.getElementById("form").submit();
  const victim = "http://TARGET/webhdfs/v1/victim?user.name=USER&op=";
  await attempt("simple POST", victim + "TRUNCATE&newlength=0", {method: "POST", mode: "no-cors"});
  await attempt("POST with the header", victim + "TRUNCATE&newlength=0",
    {method: "POST", headers: {"X-XSRF-HEADER": "x"}});
  await attempt("DELETE", victim + "DELETE", {method: "DELETE"});
  await attempt("read", victim + "OPEN", {});
  await new Promise((done) => setTimeout(done, 500));
  document.getElementById("seen").textContent = seen.join("\\n") + "\\nall was tried";
})();
</script></body>
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("browsers")
    with LocalCluster(directory, datanodes=1, port=0) as cluster:
        with PeaceFileSystem(cluster.http_address) as files:
            files.write("/victim", b"what must stay")
        yield cluster


def authority(cluster: LocalCluster) -> str:
    return f"{cluster.address.host}:{cluster.address.port}"


def content(cluster: LocalCluster) -> bytes:
    with PeaceFileSystem(cluster.http_address) as files:
        return files.read("/victim")


def ask(to: str, method: str, target: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    host, _, port = to.rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=120)
    try:
        connection.putrequest(method, target, skip_host="Host" in headers, skip_accept_encoding=True)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.putheader("Content-Length", "0")
        connection.endheaders()
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()
    finally:
        connection.close()


_TRUNCATE = f"/webhdfs/v1/victim?op=TRUNCATE&newlength=0&user.name={getpass.getuser()}"


@pytest.mark.parametrize(
    ("what", "headers"),
    [
        ("a form of another origin", {**_BROWSER, "Origin": "http://evil.example"}),
        ("a form of another port here", {**_BROWSER, "Origin": "http://127.0.0.1:8000"}),
        ("a sandboxed frame", {**_BROWSER, "Origin": "null"}),
        ("a browser that sends no Origin", _BROWSER),
        ("a fetch of another site, with the header", {"Sec_Fetch_Site": "cross-site", "X_XSRF_HEADER": "x"}),
        ("a rebound name", {**_BROWSER, "Host": "evil.example:9870", "X_XSRF_HEADER": "x"}),
        ("a rebound name of its own origin", {"Host": "evil.example", "Origin": "http://evil.example"}),
    ],
    ids=lambda what: what if isinstance(what, str) else "",
)
def test_browser_request_that_no_page_of_ours_sent_changes_nothing(
    cluster: LocalCluster, what: str, headers: dict[str, str]
) -> None:
    status, answered, body = ask(authority(cluster), "POST", _TRUNCATE, **headers)
    assert status in (400, 403), body
    assert not [name for name in answered if name.startswith("access-control-")]
    assert content(cluster) == b"what must stay"


def gateway_url(cluster: LocalCluster, operation: str) -> tuple[str, str]:
    _status, headers, _body = ask(authority(cluster), "GET", f"/webhdfs/v1/victim?op={operation}")
    url = urlsplit(headers["location"])
    return url.netloc, f"{url.path}?{url.query}"


def test_rebinding_reads_nothing_at_any_door(cluster: LocalCluster) -> None:
    gateway, target = gateway_url(cluster, "OPEN")
    assert ask(gateway, "GET", target)[2] == b"what must stay"
    for to, path in (
        (gateway, target),
        (gateway, "/metrics"),
        (authority(cluster), "/webhdfs/v1/?op=LISTSTATUS"),
        (authority(cluster), "/v1/status"),
        (authority(cluster), "/v1/openapi.json"),
    ):
        status, _headers, body = ask(to, "GET", path, Host="evil.example")
        assert (status, b"is not a name of this service" in body) == (403, True)
        status, headers, _body = ask(to, "GET", path, Origin="http://evil.example")
        assert status == 403
        status, headers, _body = ask(to, "OPTIONS", path, Origin="http://evil.example")
        assert status == 403
        assert not [name for name in headers if name.startswith("access-control-")]


def test_browser_that_visits_an_address_is_let_in_with_what_protects_it(cluster: LocalCluster) -> None:
    visit = {**_BROWSER, "Sec_Fetch_Site": "cross-site", "Sec_Fetch_Mode": "navigate"}
    for to, path in ((authority(cluster), "/v1/status"), (gateway_url(cluster, "OPEN")[0], "/")):
        status, headers, _body = ask(to, "GET", path, **visit)
        assert status == 200
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_browser_of_our_own_page_that_sends_the_header_may_change(cluster: LocalCluster) -> None:
    here = authority(cluster)
    page = {**_BROWSER, "Origin": f"http://{here}", "Sec_Fetch_Site": "same-origin"}
    target = "/webhdfs/v1/made?op=MKDIRS"
    assert ask(here, "PUT", target, **page)[0] == 400
    assert ask(here, "PUT", target, **page, X_XSRF_HEADER="x")[0] == 200


def test_description_of_rest_is_a_page_that_loads_nothing_from_elsewhere(cluster: LocalCluster) -> None:
    here = authority(cluster)
    status, headers, page = ask(here, "GET", "/v1/docs")
    assert (status, headers["content-security-policy"]) == (200, POLICY)
    assert b"//" not in page.replace(b"<!doctype html>", b"")
    for part, kind in (
        ("swagger-ui-bundle.js", "text/javascript"),
        ("swagger-ui.css", "text/css"),
        ("start.js", ""),
    ):
        status, headers, body = ask(here, "GET", f"/v1/docs/{part}")
        assert status == 200 and headers["content-type"].startswith(kind) and body
    assert ask(here, "GET", "/v1/docs/..%2fredoc.standalone.js")[0] == 404
    assert ask(here, "GET", "/v1/docs/redoc.standalone.js")[0] == 404


def browse(url: str, directory: Path, *options: str) -> str:
    """Return the page after its scripts have run."""
    assert _CHROMIUM is not None
    command = [
        *(_CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--no-first-run", f"--user-data-dir={directory}", "--timeout=20000", "--virtual-time-budget=10000"),
        *(*options, "--dump-dom", url),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=100).stdout


@pytest.mark.skipif(_CHROMIUM is None, reason="there is no Chromium")
def test_browser_with_an_attackers_page_open_harms_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    page = _PAGE.replace("TARGET", authority(cluster)).replace("USER", getpass.getuser())
    (tmp_path / "index.html").write_text(page)
    handler = functools.partial(_Quiet, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as attacker:
        threading.Thread(target=attacker.serve_forever).start()
        try:
            evil = f"http://evil.example:{attacker.server_address[1]}/"
            seen = browse(evil, tmp_path / "1", "--host-resolver-rules=MAP evil.example 127.0.0.1")
        finally:
            attacker.shutdown()
    assert "all was tried" in seen
    assert "what must stay" not in seen
    assert content(cluster) == b"what must stay"


@pytest.mark.skipif(_CHROMIUM is None, reason="there is no Chromium")
def test_browser_with_a_rebound_name_is_shown_nothing(cluster: LocalCluster, tmp_path: Path) -> None:
    url = f"http://evil.example:{cluster.address.port}/webhdfs/v1/?op=LISTSTATUS"
    seen = browse(url, tmp_path, "--host-resolver-rules=MAP evil.example 127.0.0.1")
    assert "is not a name of this service" in seen
    assert "victim" not in seen


@pytest.mark.skipif(_CHROMIUM is None, reason="there is no Chromium")
def test_browser_shows_the_description_of_rest(cluster: LocalCluster, tmp_path: Path) -> None:
    seen = browse(f"{cluster.http_address}/v1/docs", tmp_path)
    assert "/v1/files/create" in seen and "swagger-ui" in seen


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass
