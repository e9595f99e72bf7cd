"""Failover in a coordinator process: join before serving, then follow and lead on its event loop."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from peacefs.coordinator.journal.address import JournalOptions, open_journal
from peacefs.coordinator.journal.port import JournalRefused, JournalUnsure, Member
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.metadata.journal_chain import JournalDiffers
from peacefs.coordinator.metadata.store import Metadata, MetadataFault
from peacefs.protocol.tokens import Signer
from peacefs.protocol.values.cluster_status import FailoverStatus
from peacefs.runtime.tls import TlsIdentity

from .door import Door
from .joining import Joining
from .leadership import Leadership
from .service import Failover, FarBehind, Follower
from .store_copying import StoreCopying

# Minimum interval in which a standby checks that the leader accepts connections, before it sends clients there.
leader_probe_s: Final = 0.2
leader_probe_timeout_s: Final = 0.5


log = logging.getLogger("peacefs.coordinator")
#: EX_TEMPFAIL: the supervisor starts the process again.
EXIT_TO_START_AGAIN = 75
#: Time to answer the request for a hand-over before the process stops.
_ANSWERED_WITHIN_S = 1.0


class FailoverProcess:
    """The failover of one process. `metadata` agrees with the journal once it has joined."""

    def __init__(self, options: JournalOptions, me: Member, *, no_tls: bool) -> None:
        """Open the journal. Raises StartupError."""
        self._journal = open_journal(options, no_tls=no_tls)
        self._writer = JournalWriter(self._journal)
        self.leadership = Leadership(time.monotonic, me)
        self.door = Door(
            self.leadership, time.monotonic, asyncio.sleep, leader_lives=LeaderProbe(self.leadership).lives
        )
        self.failover: Failover | None = None

    def join(
        self,
        store: Path,
        open_store: Callable[[JournalWriter], Metadata],
        signer: Signer,
        tls: TlsIdentity | None,
    ) -> Metadata:
        """Return the store at a path. Make or copy it if there is none. Raises StartupError.

        `open_store` opens or makes a store that follows the journal.
        """
        me = self.leadership.me
        assert me is not None
        copying = StoreCopying(signer, tls)
        return Joining(store, self._writer, me, open_store, copying).join().metadata

    async def keep(
        self,
        me: Member,
        metadata: Metadata,
        follower: Follower,
        on_fault: Callable[[BaseException], NoReturn],
    ) -> None:
        """Stand by, and lead when nobody does, as `me`, for as long as the process lives."""
        self.leadership.known_as(me)
        failover = self.failover = Failover(
            self._writer,
            metadata,
            self.leadership,
            follower,
            run=asyncio.to_thread,
            sleep=asyncio.sleep,
            on_replaced=_end,
        )
        try:
            await failover.keep()
        except MetadataFault as fault:
            on_fault(fault)
        except (FarBehind, JournalDiffers) as problem:
            _end(f"{problem}: the metadata is copied anew at the next start")

    def status(self) -> FailoverStatus | None:
        return None if self.failover is None else self.failover.standings.status()

    def others(self) -> list[str]:
        """Return the addresses of the other running coordinators."""
        standings = () if self.failover is None else self.failover.standings.all
        me = self.leadership.me
        there = [each.member.name for each in standings if not each.problem]
        return sorted(name for name in there if me is None or name != me.name)

    async def hand_over(self, stop: Callable[[], object]) -> str:
        """Make another coordinator lead; return its name. `stop` ends this process, which restarts as a standby.

        Raises Standby if this coordinator does not lead; BadRequest if it continues to lead.
        """
        # The caller may disconnect, but the hand-over must not stop half-way.
        handing = asyncio.ensure_future(self._hand_over(stop))
        return await asyncio.shield(handing)

    async def _hand_over(self, stop: Callable[[], object]) -> str:
        assert self.failover is not None
        leader = await self.failover.hand_over()
        log.warning("stopping: %s leads now. Restart this coordinator as a standby", leader.name)
        asyncio.get_running_loop().call_later(_ANSWERED_WITHIN_S, stop)
        return leader.name

    def close(self) -> None:
        """Release the lease, so that another coordinator can lead at once, and close the journal."""
        try:
            self._journal.resign()
        except (JournalUnsure, JournalRefused) as problem:
            log.info("the lease was not released and will expire: %s", problem)
        self._journal.close()


class LeaderProbe:
    """Finds out whether the leader accepts connections, once for all callers of the same moment."""

    def __init__(self, leadership: Leadership) -> None:
        self._leadership = leadership
        self._looked: tuple[float, Member, bool] | None = None
        self._looking = asyncio.Lock()

    async def lives(self) -> bool:
        async with self._looking:
            leader = self._leadership.leader
            if leader is None or leader == self._leadership.me:
                return False
            now_s = time.monotonic()
            if self._looked is None or self._looked[1] != leader or now_s - self._looked[0] >= leader_probe_s:
                self._looked = now_s, leader, await _takes_connections(leader)
            return self._looked[2]


async def _takes_connections(leader: Member) -> bool:
    host, _, port = leader.name.rpartition(":")
    try:
        connecting = asyncio.open_connection(host.strip("[]"), int(port))
        _reader, writer = await asyncio.wait_for(connecting, leader_probe_timeout_s)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _end(why: str) -> NoReturn:
    """End this process now: its answers could be outdated."""
    log.critical("%s: stopping", why)
    logging.shutdown()
    os._exit(EXIT_TO_START_AGAIN)
