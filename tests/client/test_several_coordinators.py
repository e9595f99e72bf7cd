"""Several coordinators with one leader: clients find it, fail over, and repeat no change."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Sequence
from typing import cast

import httpx
import pytest

from peacefs.client.control.addresses import CoordinatorAddress, name_cluster, parse_address, split_uri
from peacefs.client.control.coordinators import Coordinators
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.control.names import NameApi
from peacefs.client.control.retry import RetryPolicy
from peacefs.client.control.rpc import ControlRpc
from peacefs.client.limits import client_retry_s
from peacefs.protocol.errors import (
    BadRequest,
    FileNotFound,
    Overloaded,
    PeacefsError,
    PeerUnreachable,
    ServiceUnready,
    Standby,
    remote_exception,
)
from peacefs.protocol.frames import Frame
from peacefs.protocol.messages import Failure, NameChange, NameChanged
from peacefs.runtime.connection_pool import ConnectionPool

#: A coordinator's state: dead, silent (after executing the call), refusing, or leading.
State = str | PeacefsError
DEAD, SILENT, LEADS = "dead", "silent", "leads"
STANDBY = Standby("this coordinator stands by; b leads")
UNREADY = ServiceUnready("nobody leads")


class Cluster:
    """Coordinators by name, with their states by the second. Only pauses move the clock."""

    def __init__(self, **states: Callable[[float], State]) -> None:
        self._states = states
        self.now_s = 0.0
        #: The coordinators that were asked, with their answers; None from a dead one.
        self.asked: list[tuple[str, object]] = []
        self.address = parse_address(",".join(f"{name}:9870" for name in states))
        policy = RetryPolicy(clock=lambda: self.now_s, sleep=self._sleep, rng=random.Random(1))
        self.coordinators = Coordinators(self.address)
        self.calls = ControlRpc(self.coordinators, cast(ConnectionPool, self), policy)
        self.names = NameApi(self.calls, "alice")
        transport = httpx.MockTransport(self._react)
        self.http = CoordinatorHttp(self.coordinators, policy, transport=transport)

    def _sleep(self, seconds: float) -> None:
        self.now_s += seconds

    def state(self, name: str) -> State:
        return self._states[name](self.now_s)

    def order(self) -> str:
        return "".join(name for name, _ in self.asked)

    def _react(self, request: httpx.Request) -> httpx.Response:
        state = self.state(request.url.host)
        self.asked.append((request.url.host, request))
        if isinstance(state, PeacefsError):
            return httpx.Response(state.http_status, content=json.dumps(remote_exception(state)).encode())
        if state == DEAD:
            raise httpx.ConnectError("refused", request=request)
        if state == SILENT:
            raise httpx.ReadError("it broke", request=request)
        return httpx.Response(200, content=b"{}")

    # -- the pool of connections -------------------------------------------------------------------

    def connect(self, address: tuple[str, int], _name: str, _role: str) -> Connection:
        if self.state(address[0]) == DEAD:
            self.asked.append((address[0], None))
            raise PeerUnreachable("refused")
        return Connection(self, address[0])

    def kept(self, _address: object, _name: str) -> None:
        return None

    def release(self, _connection: object) -> None: ...

    def close(self, _connection: object) -> None: ...


class Connection:
    def __init__(self, cluster: Cluster, name: str) -> None:
        self._cluster = cluster
        self._name = name

    def send_frames(self, frames: Sequence[Frame], _timeout_s: float) -> None:
        self._cluster.asked += [(self._name, frame.message) for frame in frames]

    def receive(self, _timeout_s: float) -> Frame:
        state = self._cluster.state(self._name)
        if isinstance(state, PeacefsError):
            return Frame(Failure(state.code, state.message))
        if state == SILENT:
            raise PeerUnreachable("it broke")
        return Frame(NameChanged())


def always(state: State) -> Callable[[float], State]:
    return lambda _now_s: state


def until(end_s: float, before: State, after: State) -> Callable[[float], State]:
    return lambda now_s: before if now_s < end_s else after


WAYS: dict[str, Callable[[Cluster], object]] = {
    "frames": lambda cluster: cluster.names.mkdirs("/a"),
    "HTTP": lambda cluster: cluster.http.ask("GET", "/v1/status"),
}
either_way = pytest.mark.parametrize("ask", WAYS.values(), ids=WAYS)


@either_way
@pytest.mark.parametrize("first", [DEAD, SILENT, STANDBY, UNREADY], ids=["dead", "silent", "standby", "unready"])
def test_coordinator_that_leads_is_found_at_once_and_remembered(
    ask: Callable[[Cluster], object], first: State
) -> None:
    cluster = Cluster(a=always(first), b=always(LEADS))
    ask(cluster)
    ask(cluster)
    assert (cluster.order(), cluster.now_s) == ("abb", 0.0)


@either_way
@pytest.mark.parametrize("without_s", [3.0, pytest.param(12.0, marks=pytest.mark.long("waits long"))])
@pytest.mark.parametrize("told", [STANDBY, UNREADY, SILENT], ids=["standby", "unready", "silent"])
def test_takeover_is_ridden_out(ask: Callable[[Cluster], object], without_s: float, told: State) -> None:
    cluster = Cluster(a=until(1e-9, LEADS, DEAD), b=until(without_s, told, LEADS))
    ask(cluster)
    cluster.now_s = 0.5
    ask(cluster)
    assert without_s <= cluster.now_s < without_s + 5
    assert cluster.coordinators.current.host == "b"


@either_way
def test_leader_is_found_however_many_there_are(
    ask: Callable[[Cluster], object],
) -> None:
    cluster = Cluster(a=always(DEAD), b=always(STANDBY), c=always(DEAD), d=always(LEADS))
    ask(cluster)
    assert (cluster.order(), cluster.now_s) == ("abcd", 0.0)


@either_way
def test_absence_of_all_is_told_at_once_with_all_addresses(ask: Callable[[Cluster], object]) -> None:
    cluster = Cluster(a=always(DEAD), b=always(DEAD))
    with pytest.raises(PeerUnreachable, match="no address is known for the host a or b"):
        ask(cluster)
    assert (cluster.order(), cluster.now_s) == ("ab", 0.0)


@either_way
@pytest.mark.parametrize("state", [DEAD, STANDBY, UNREADY], ids=["dead", "standby", "unready"])
def test_search_for_a_leader_is_bounded(ask: Callable[[Cluster], object], state: State) -> None:
    cluster = Cluster(a=until(1.0, LEADS, state), b=until(1.0, LEADS, state))
    ask(cluster)
    cluster.now_s = 1.0
    with pytest.raises((PeerUnreachable, ServiceUnready)):
        ask(cluster)
    assert client_retry_s / 2 < cluster.now_s - 1.0 <= client_retry_s
    assert len(cluster.asked) < 200


@either_way
def test_standby_whose_address_alone_is_known_is_asked_once_and_says_who_leads(
    ask: Callable[[Cluster], object],
) -> None:
    cluster = Cluster(a=until(1.0, LEADS, STANDBY))
    ask(cluster)
    cluster.now_s = 1.0
    with pytest.raises(Standby, match="b leads"):
        ask(cluster)
    assert (cluster.order(), cluster.now_s) == ("aa", 1.0)


@either_way
@pytest.mark.parametrize("refusal", [Overloaded("busy"), FileNotFound("/a does not exist")])
def test_refusal_of_the_leader_itself_is_taken_to_nobody_else(
    ask: Callable[[Cluster], object], refusal: PeacefsError
) -> None:
    cluster = Cluster(a=until(2.0, refusal, LEADS), b=always(STANDBY))
    if refusal.retriable:
        ask(cluster)
    else:
        with pytest.raises(FileNotFound):
            ask(cluster)
    assert set(cluster.order()) == {"a"}


def test_change_that_the_next_leader_is_asked_for_is_the_same_request() -> None:
    cluster = Cluster(a=always(SILENT), b=until(3.0, STANDBY, LEADS))
    cluster.names.mkdirs("/a")
    cluster.names.mkdirs("/b")
    asked = [message for _, message in cluster.asked if isinstance(message, NameChange)]
    first = [message for message in asked if message.path == "/a"]
    assert {name for name, message in cluster.asked if message in first} == {"a", "b"}
    assert len({message.request_id for message in first}) == 1
    assert len({message.request_id for message in asked}) == 2


def test_threads_that_find_the_same_one_dead_move_on_once() -> None:
    coordinators = Coordinators(parse_address("a,b,c"))
    first = coordinators.current
    threads = [threading.Thread(target=coordinators.leave, args=(first,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert coordinators.current.host == "b"


def test_list_of_addresses_is_read_from_every_form_and_shown() -> None:
    wanted = CoordinatorAddress("a", 9870, others=(CoordinatorAddress("b", 9871), CoordinatorAddress("::1", 9870)))
    for text in (
        "a,b:9871,[::1]",
        "http://a:9870,b:9871,[::1]:9870",
        "http://a,http://b:9871,http://[::1]",
        "webhdfs://a:9870,b:9871,[::1]:9870",
    ):
        assert parse_address(text) == wanted
    assert wanted.http == "http://a:9870,b:9871,[::1]:9870"
    assert parse_address(wanted.http) == wanted
    assert [one.http for one in wanted.each] == ["http://a:9870", "http://b:9871", "http://[::1]:9870"]
    assert split_uri("peace://a,b:9871,[::1]/x/y,z") == (wanted, "/x/y,z")
    over_tls = parse_address("https://a,b")
    assert [one.http for one in over_tls.each] == ["https://a:9870", "https://b:9870"]


@pytest.mark.parametrize("text", ["a,", ",a", "a,,b", "a,b:x", "a,a:9870", "http://a,b c"])
def test_list_with_a_mistake_is_refused(text: str) -> None:
    with pytest.raises(BadRequest):
        parse_address(text)


def test_name_of_a_cluster_in_sparks_uris_leads_to_its_coordinators() -> None:
    address = parse_address("a:9870,b:9870")
    assert address.webhdfs == "webhdfs://peacefs"
    name_cluster(parse_address("c:1"))
    name_cluster(address)
    assert split_uri("webhdfs://peacefs/checkpoints/q") == (address, "/checkpoints/q")
