"""An operator who decommissions and returns datanodes, and balances datanodes and disks, amid all faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import inf
from random import Random

from simulation.simulated_cluster import SimulatedCluster
from simulation.simulated_datanode import SimulatedDatanode

from peacefs.coordinator.cluster.membership import AdminState
from peacefs.coordinator.metadata.model import Mode
from peacefs.protocol.limits import MIB
from peacefs.protocol.messages import BalanceDisks

_LOOK_S = 0.5
_PATIENCE_S = 120.0
_OFF_S = 20.0
_RUN_S = 20.0
_CAPACITY = 1024 * MIB
_THRESHOLD = 1e-5
_DISK_THRESHOLD = 1e-7
_BYTES_PER_SECOND = 4.0 * MIB


class Operator:
    """Performs one operation at a time. A datanode that has been drained comes back with empty disks."""

    def __init__(self, cluster: SimulatedCluster, random: Random) -> None:
        self._cluster = cluster
        self._random = random
        self._is_over = False
        self.done: Counter[str] = Counter()
        for datanode in cluster.datanodes:
            datanode.capacity_bytes = _CAPACITY
        self._decide_later()

    def rest(self) -> None:
        """Stop, and put all datanodes back into service."""
        self._is_over = True
        self._cluster.world.later(_LOOK_S, self._put_all_back)

    def _decide_later(self) -> None:
        self._cluster.world.later(self._random.uniform(5.0, 60.0), self._decide)

    def _decide(self) -> None:
        if self._is_over:
            return
        datanode = self._random.choice(self._cluster.datanodes)
        match self._random.choice(("decommission", "maintain", "balance", "balance disks")):
            case "decommission":
                self._set(datanode, Mode.DECOMMISSION)
                self._when_it_is(datanode, AdminState.DECOMMISSIONED, lambda: self._replace(datanode))
            case "maintain":
                self._set(datanode, Mode.MAINTENANCE)
                self._when_it_is(datanode, AdminState.IN_MAINTENANCE, lambda: self._switch_off(datanode))
            case "balance":
                self._keep_balancing(f"run-{self._cluster.world.now_s}", self._cluster.world.now_s + _RUN_S)
            case "balance disks":
                moved = datanode.disk_balancer.moved_total
                run = f"disks-{self._cluster.world.now_s}"
                self._keep_balancing_disks(datanode, run, self._cluster.world.now_s + _RUN_S, moved)

    # -- decommissioning and maintenance -------------------------------------------------------------

    def _set(self, datanode: SimulatedDatanode, mode: Mode) -> None:
        """Request a change. The request may be lost, refused, or forgotten before it is done."""
        coordinator = self._cluster.coordinator
        if coordinator.node.up:
            deciding = coordinator.files.administration.decide(datanode.node.name, mode)
            self._cluster.world.spawn(coordinator.node, "deciding", deciding)

    def _put_all_back(self) -> None:
        for datanode in self._cluster.datanodes:
            self._put_back(datanode)

    def _put_back(self, datanode: SimulatedDatanode) -> None:
        """Repeat the request until the datanode is in service."""
        if self._cluster.coordinator.cluster.members.mode(datanode.node.name) is not Mode.IN_SERVICE:
            self._set(datanode, Mode.IN_SERVICE)
            self._cluster.world.later(_LOOK_S, lambda: self._put_back(datanode))

    def _when_it_is(
        self, datanode: SimulatedDatanode, admin_state: AdminState, act: Callable[[], None], until_s: float = inf
    ) -> None:
        world, coordinator = self._cluster.world, self._cluster.coordinator
        until_s = min(until_s, world.now_s + _PATIENCE_S)
        node = coordinator.cluster.members.get(datanode.node.name) if coordinator.node.up else None
        if self._is_over or world.now_s >= until_s:
            self._return(datanode)
        elif node is not None and datanode.node.up and coordinator.cluster.admin_state_of(node) is admin_state:
            self.done[admin_state.value] += 1
            if admin_state is AdminState.DECOMMISSIONED:
                self._check_drained(datanode)
            act()
        else:
            world.later(_LOOK_S, lambda: self._when_it_is(datanode, admin_state, act, until_s))

    def _check_drained(self, datanode: SimulatedDatanode) -> None:
        """Check that each chunk of a drained datanode has enough replicas on other nodes."""
        coordinator, name = self._cluster.coordinator, datanode.node.name
        chunks, members = coordinator.cluster.chunks, coordinator.cluster.members
        for record in coordinator.metadata.reader().chunks(0, 1_000_000):
            state = chunks.get(record.chunk)
            if state is None or name not in state.holders:
                continue
            others = [each for each in state.holders if members.mode(each) is not Mode.DECOMMISSION]
            assert len(others) >= state.replication, f"{name} is said to be drained, and {state} needs it"

    def _replace(self, datanode: SimulatedDatanode) -> None:
        """Replace the disks of a drained datanode, whose replicas nobody needs."""
        datanode.crash()
        datanode.wipe()
        datanode.start()
        self._return(datanode)

    def _switch_off(self, datanode: SimulatedDatanode) -> None:
        datanode.crash()

        def back() -> None:
            datanode.start()
            self._return(datanode)

        self._cluster.world.later(self._random.uniform(1.0, _OFF_S), back)

    def _return(self, datanode: SimulatedDatanode) -> None:
        self._put_back(datanode)
        self._decide_later()

    # -- balancing -----------------------------------------------------------------------------------

    def _keep_balancing(self, run: str, until_s: float) -> None:
        """Start the balancer again if the coordinator has forgotten it, as `peacefs balance` does."""
        world, coordinator = self._cluster.world, self._cluster.coordinator
        core = coordinator.cluster
        if self._is_over or world.now_s >= until_s:
            self.done["moved"] += core.balancer.run.moved if core.balancer.run else 0
            core.balancer.cancel(run)
            self._decide_later()
            return
        if coordinator.node.up and core.ready(world.now_s):
            core.balancer.start(world.now_s, run, core.members, _THRESHOLD, _BYTES_PER_SECOND)
            core.balancer.renew(world.now_s, run)
        world.later(_LOOK_S, lambda: self._keep_balancing(run, until_s))

    def _keep_balancing_disks(self, datanode: SimulatedDatanode, run: str, until_s: float, moved: int) -> None:
        world = self._cluster.world
        if self._is_over or world.now_s >= until_s:
            self.done["moved between disks"] += max(0, datanode.disk_balancer.moved_total - moved)
            self._decide_later()
            return
        if datanode.node.up:
            datanode.disk_balancer.asked(BalanceDisks(run, _DISK_THRESHOLD, _BYTES_PER_SECOND))
        world.later(_LOOK_S, lambda: self._keep_balancing_disks(datanode, run, until_s, moved))
