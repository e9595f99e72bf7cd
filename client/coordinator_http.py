"""One HTTP conversation with a coordinator: asks, asks again where that helps, raises errors of our tree.

Knows nothing of what is asked. Every request that it carries must be safe to repeat: either because it changes
nothing, or because it carries a request id that the coordinator recognises.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from typing import Any

import httpx
import msgspec

from peacefs.protocol.errors import (
    PeacefsError,
    PeerRefused,
    PeerTimeout,
    PeerUnreachable,
    from_remote_exception,
)
from peacefs.protocol.limits import (
    client_answer_timeout_s,
    client_backoff_max_s,
    client_backoff_s,
    client_patience_s,
    connect_timeout_s,
)

from .addresses import CoordinatorAddress


class CoordinatorHttp:
    """Thread-safe. `clock`, `sleep` and `rng` are replaced in tests only, `transport` too."""

    def __init__(
        self,
        address: CoordinatorAddress,
        *,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        rng: random.Random | None = None,
    ) -> None:
        self.address = address
        self._clock = clock
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._has_answered = False
        # Neither a proxy from the environment (it would not reach 127.0.0.1 of this machine) nor certificates
        # (20 ms to load, and there is no https here) are of use.
        self._http = httpx.Client(base_url=address.http, trust_env=False, verify=False, transport=transport)

    def close(self) -> None:
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str] | None = None,
        body: bytes = b"",
        patience_s: float = client_patience_s,
        answer_timeout_s: float = client_answer_timeout_s,
    ) -> bytes:
        """One logical request; the answer's body. `path` is percent-encoded already.

        Errors that may pass are met with growing pauses; no attempt begins after `patience_s`, none waits longer
        than `answer_timeout_s`. A coordinator that has never answered is taken for absent at once; one that has
        is given time to come back.
        Raises what the coordinator answered, or PeerUnreachable, PeerTimeout, PeerRefused.
        """
        deadline = self._clock() + patience_s
        pause_s = client_backoff_s
        while True:
            fault: PeacefsError
            try:
                return self._attempt(method, path, params, body, answer_timeout_s)
            except (httpx.ConnectError, httpx.ConnectTimeout):
                fault = self._nobody_there()
                if not self._has_answered:
                    raise fault from None
            except httpx.TimeoutException:
                fault = PeerTimeout(
                    f"the coordinator at {self.address.http} said nothing for {answer_timeout_s:g} s"
                )
            except httpx.TransportError as broken:
                fault = PeerUnreachable(f"the connection to {self.address.http} broke: {broken}")
            except PeacefsError as refusal:
                if not refusal.retriable:
                    raise
                fault = refusal
            pause_s = min(pause_s * 2, client_backoff_max_s) * self._rng.uniform(0.5, 1.0)
            if self._clock() + pause_s > deadline:
                raise fault from None
            self._sleep(pause_s)

    def download(
        self,
        path: str,
        take: Callable[[bytes], object],
        progress: Callable[[int, int], None],
        *,
        answer_timeout_s: float,
    ) -> None:
        """Posts, and hands the answer's body on piece by piece; `progress` is told of bytes come and in all.

        Is not repeated. Raises what the coordinator answered, PeerUnreachable (also when the body ends too
        early), PeerTimeout, PeerRefused.
        """
        timeout = httpx.Timeout(answer_timeout_s, connect=connect_timeout_s)
        try:
            with self._http.stream("POST", path, timeout=timeout) as response:
                if not response.is_success:
                    response.read()
                    raise self._refusal(response)
                whole, come = int(response.headers["content-length"]), 0
                for piece in response.iter_bytes():
                    take(piece)
                    come += len(piece)
                    progress(come, whole)
        except (httpx.ConnectError, httpx.ConnectTimeout):
            raise self._nobody_there() from None
        except httpx.TimeoutException:
            raise PeerTimeout(
                f"the coordinator at {self.address.http} said nothing for {answer_timeout_s:g} s"
            ) from None
        except httpx.TransportError as broken:
            raise PeerUnreachable(f"the connection to {self.address.http} broke: {broken}") from None

    def _attempt(
        self, method: str, path: str, params: Mapping[str, str] | None, body: bytes, timeout_s: float
    ) -> bytes:
        response = self._http.request(
            method,
            path,
            params=params,
            content=body or None,
            headers={"Content-Type": "application/json"} if body else None,
            timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, connect_timeout_s)),
        )
        self._has_answered = True
        if response.is_success:
            return response.content
        raise self._refusal(response)

    def _refusal(self, response: httpx.Response) -> PeacefsError:
        try:
            body: Any = msgspec.json.decode(response.content)
        except msgspec.DecodeError:
            body = None
        if isinstance(body, dict) and isinstance(body.get("RemoteException"), dict):
            return from_remote_exception(body)
        return PeerRefused(
            f"{self.address.http} does not answer like a peacefs coordinator (HTTP status {response.status_code})"
        )

    def _nobody_there(self) -> PeerUnreachable:
        return PeerUnreachable(
            f"no coordinator at {self.address.http}: is `peacefs up` running? "
            "Another address is given with --coordinator or PEACEFS_COORDINATOR"
        )
