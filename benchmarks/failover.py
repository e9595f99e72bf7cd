"""A leader is killed, frozen, or told to hand over: how long until a change and a read are answered again?

Two coordinators, one member of etcd and three datanodes on this machine, as `peacefs up --standby` runs them. Two
clients ask the coordinator that did not lead, one for changes and one for reads, from the moment of the fault on.
Beside that: what the journal costs, with directories made over WebHDFS by eight clients, with and without it by
turns. All syncs share one disk here.
"""

from __future__ import annotations

import itertools
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from peacefs.client.local_cluster.cluster import LocalCluster
from peacefs.client.local_cluster.member_process import Member

from .report import show

_GOALS_S = {"killed": 3.0, "frozen": 3.0, "handed over": 0.5}
_TRY_S = 0.3
_LIMIT_S = 120.0
_CLIENTS = 8
_numbers = itertools.count()


def main(*, quick: bool = False) -> None:
    runs, made = (3, 200) if quick else (20, 2000)
    with tempfile.TemporaryDirectory() as directory:
        with LocalCluster(Path(directory) / "failover", 3, 0, standby=True) as cluster:
            rows = [_row(cluster, fault, runs) for fault in _GOALS_S]
        show("failover", "From the fault to the first answer, in seconds", rows)
        show("failover_rates", "Directories made a second over WebHDFS, by eight clients", _rates(directory, made))


def _row(cluster: LocalCluster, fault: str, runs: int) -> dict[str, object]:
    changes, reads = [], []
    for _ in range(runs):
        leader, other = _leader_first(cluster)
        began_s = time.monotonic()
        with ThreadPoolExecutor(3) as pool:
            striking = pool.submit(_strike, fault, leader)
            change = pool.submit(_answered_after_s, cluster, other, began_s, _make)
            read = pool.submit(_answered_after_s, cluster, other, began_s, _list)
            changes.append(change.result())
            reads.append(read.result())
            striking.result()
        _mend(cluster, fault, leader)
    return {
        "leader": fault,
        "runs": runs,
        "change p50": round(statistics.median(changes), 2),
        "change worst": round(max(changes), 2),
        "read p50": round(statistics.median(reads), 2),
        "read worst": round(max(reads), 2),
        "goal": _GOALS_S[fault],
    }


def _url(member: Member) -> str:
    return f"http://{member.readiness.http_host}:{member.readiness.http_port}"


def _make(url: str, timeout_s: float = _LIMIT_S) -> bool:
    path = f"{url}/webhdfs/v1/made/{next(_numbers)}?op=MKDIRS&user.name=ann"
    return httpx.put(path, timeout=timeout_s, trust_env=False).is_success


def _list(url: str, timeout_s: float = _LIMIT_S) -> bool:
    path = f"{url}/webhdfs/v1/?op=GETFILESTATUS&user.name=ann"
    return httpx.get(path, timeout=timeout_s, trust_env=False).is_success


def _tries(call: Callable[..., bool], member: Member, timeout_s: float) -> bool:
    try:
        return call(_url(member), timeout_s)
    except httpx.HTTPError:
        return False


def _leader_first(cluster: LocalCluster) -> tuple[Member, Member]:
    """Wait until one leads, the other is ready to, and its datanodes are there."""
    assert cluster.standby is not None
    give_up_s = time.monotonic() + _LIMIT_S
    while time.monotonic() < give_up_s:
        for leader, other in ((cluster.coordinator, cluster.standby), (cluster.standby, cluster.coordinator)):
            try:
                status = httpx.get(f"{_url(other)}/v1/status", timeout=5, trust_env=False).json()
            except httpx.HTTPError:
                continue
            living = [each for each in status["datanodes"] if each["state"] == "alive"]
            failover = status["failover"]
            is_warm = len(living) == 3 and failover["lag"] == 0 and not failover["leads"]
            if is_warm and len(failover["coordinators"]) == 2 and _tries(_make, leader, _TRY_S):
                return leader, other
        time.sleep(0.1)
    raise SystemExit("nobody leads")


def _strike(fault: str, leader: Member) -> None:
    if fault == "killed":
        leader.kill()
    elif fault == "frozen":
        os.kill(leader.pid, signal.SIGSTOP)
    else:
        user = os.environ.get("USER", "root")
        path = f"{_url(leader)}/v1/coordinator/hand-over?user={user}"
        answer = httpx.post(path, timeout=_LIMIT_S, trust_env=False)
        assert answer.is_success, answer.text


def _answered_after_s(cluster: LocalCluster, other: Member, began_s: float, call: Callable[..., bool]) -> float:
    """Until the one that did not lead has answered."""
    while time.monotonic() - began_s < _LIMIT_S:
        if _tries(call, other, _LIMIT_S):
            return time.monotonic() - began_s
        time.sleep(0.01)
    raise SystemExit("nobody has answered")


def _mend(cluster: LocalCluster, fault: str, member: Member) -> None:
    if fault == "frozen":
        os.kill(member.pid, signal.SIGCONT)
    member.await_end(time.monotonic() + _LIMIT_S)
    cluster.restart(member)


def _rates(directory: str, made: int) -> list[dict[str, object]]:
    with (
        LocalCluster(Path(directory) / "alone", 1, 0) as alone,
        LocalCluster(Path(directory) / "journal", 1, 0, standby=True) as journal,
    ):
        clusters = {"alone": alone, "with a journal": journal}
        rates: dict[str, list[float]] = {name: [] for name in clusters}
        for _ in range(4):
            for name, cluster in clusters.items():
                rates[name].append(_rate(cluster.http_address, made))
    medians = {name: statistics.median(measured) for name, measured in rates.items()}
    return [
        {"coordinator": name, "a second": round(rate), "of alone": round(rate / medians["alone"], 2)}
        for name, rate in medians.items()
    ]


def _rate(url: str, made: int) -> float:
    def client(number: int) -> None:
        with httpx.Client(trust_env=False, timeout=_LIMIT_S) as http:
            for _ in range(made // _CLIENTS):
                path = f"{url}/webhdfs/v1/rate/{next(_numbers)}?op=MKDIRS&user.name=ann"
                assert http.put(path).is_success

    began_s = time.monotonic()
    with ThreadPoolExecutor(_CLIENTS) as pool:
        list(pool.map(client, range(_CLIENTS)))
    return made / (time.monotonic() - began_s)
