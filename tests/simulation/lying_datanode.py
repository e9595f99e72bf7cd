"""A lying datanode of the simulated world: it knows the cluster's secret, stores nothing, and claims anything."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simulation.client_requests import OnLink
from simulation.terms import CALL_TIMEOUT_S
from simulation.world import World

from peacefs.protocol.credentials import Credential
from peacefs.protocol.errors import PeacefsError
from peacefs.protocol.limits import heartbeat_interval_s
from peacefs.protocol.messages import (
    Done,
    Failure,
    Heartbeat,
    HeartbeatAck,
    Message,
    ProveReplicas,
    Register,
    Registered,
    Replica,
    ReplicaProof,
    ReplicasProven,
    ReportChunks,
    Usage,
)
from peacefs.runtime import effects as fx

#: It claims more free space than all others, so that every other holder of a replica seems easier to spare.
_USAGE = Usage(1 << 50, 0, 1 << 50)


class LyingDatanode:
    """Claims every replica that any datanode has. Several liars agree about their claims."""

    def __init__(self, world: World, name: str, rack: str, claims: Callable[[], Iterable[Replica]]) -> None:
        self.world = world
        self.node = world.add_node(name)
        self._rack = rack
        self._claims = claims
        self._credential = Credential.make()
        world.spawn(self.node, "lying", self._live())

    def _live(self) -> fx.Steps[None]:
        while True:
            try:
                yield from self._stay_registered()
            except PeacefsError:
                yield from fx.sleep(0.5)

    def _stay_registered(self) -> fx.Steps[None]:
        name, address = self.node.name, (f"{self.node.name}.simulated", 9866)
        link = f"{name}-{self.world.now_s}"
        proof = self._credential.sign_registration(name, link.encode())
        registration = Register(
            name,
            *address,
            *address,
            self._rack,
            _USAGE,
            public_key=self._credential.public_key,
            proof=proof,
        )
        yield from fx.call(OnLink(link, registration), Registered, timeout_s=CALL_TIMEOUT_S)
        yield from fx.call(OnLink(link, ReportChunks(self._claimed(), True)), Done, timeout_s=CALL_TIMEOUT_S)
        while True:
            beat = Heartbeat(_USAGE, added=self._claimed())
            yield from fx.call(OnLink(link, beat), HeartbeatAck, timeout_s=CALL_TIMEOUT_S)
            yield from fx.sleep(heartbeat_interval_s)

    def _claimed(self) -> list[Replica]:
        return sorted(self._claims(), key=lambda replica: replica.chunk)

    def order(self, order: Message, answered: Callable[[Message], None]) -> None:
        """Claim to have carried out any order. If asked to prove a replica, invent the answer."""
        reply = self._proofs(order) if isinstance(order, ProveReplicas) else Done()
        if reply is not None:
            self.world.later(self.world.transit_s(), lambda: answered(reply))

    def _proofs(self, order: ProveReplicas) -> Message | None:
        random = self.world.random
        match random.choice(("made up", "agreed", "refused", "silent", "done")):
            case "made up":
                digests = [random.randbytes(16) for _ in order.challenges]
            case "agreed":
                digests = [bytes(each.nonce[:16]) for each in order.challenges]
            case "refused":
                return Failure("ChunkNotFound", "it was here a moment ago")
            case "silent":
                return None
            case _:
                return Done()
        proofs = [
            ReplicaProof(each.chunk, each.version, digest, digest)
            for each, digest in zip(order.challenges, digests, strict=True)
        ]
        return ReplicasProven(proofs)
