"""Prepares a coordinator's store: makes it, compares it with the journal, or copies the leader's.

All of this happens before the first event loop, and may wait for etcd or for a leader.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from peacefs.coordinator.journal.port import (
    JournalFull,
    JournalIdentity,
    JournalRefused,
    JournalUnsure,
    Member,
    Standing,
)
from peacefs.coordinator.journal.writer import JournalWriter
from peacefs.coordinator.limits import leader_lease_s, leader_poll_interval_s
from peacefs.coordinator.metadata.journal_chain import JournalDiffers
from peacefs.coordinator.metadata.sqlite import exact_copies
from peacefs.coordinator.metadata.store import Metadata
from peacefs.protocol.errors import PeacefsError, PeerRefused, StartupError

log = logging.getLogger("peacefs.coordinator")
_COMPLAINT_INTERVAL_S = 5.0
# Seconds for which the leader shows why a coordinator did not start. Each failed start begins them again.
problem_shown_s: Final = 3600.0


class LeaderAccess(Protocol):
    """The connection to the leading coordinator: `StoreCopying`."""

    def greet(self, leader: Member, cluster: str, /) -> None:
        """Shake hands with the leader. Raises PeerRefused if it does not accept us, PeacefsError."""

    def copy(self, leader: Member, cluster: str, target: Path, /) -> None:
        """Copy the leader's metadata to a new file. Raises PeerRefused, PeacefsError."""


class Joined(NamedTuple):
    """A store that agrees with the journal, and the journal's identity."""

    metadata: Metadata
    identity: JournalIdentity


class Joining:
    """Joins one coordinator to the journal. Used once, by the process, before it serves.

    `join` returns only a store that agrees with the journal. Any other store could give wrong answers.
    """

    def __init__(
        self,
        store: Path,
        writer: JournalWriter,
        me: Member,
        open_store: Callable[[JournalWriter], Metadata],
        access: LeaderAccess,
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._directory = store.parent
        self._writer = writer
        self._journal = writer.journal
        self._me = me
        self._open_store = open_store
        self._access = access
        self._sleep = sleep
        self._clock = clock
        self._complained_s = float("-inf")

    def join(self) -> Joined:
        """Wait until the store is ready. Raises StartupError if waiting does not help."""
        while True:
            try:
                if (joined := self._try_to_join()) is not None:
                    return joined
            except JournalUnsure as unsure:
                self._complain(f"{unsure}. Waiting for the journal")
            except JournalRefused as refused:
                raise StartupError(str(refused)) from None
            except StartupError as problem:
                self._state(str(problem))
                raise
            self._sleep(leader_poll_interval_s)

    def _state(self, problem: str) -> None:
        """Have the leader show why this coordinator does not start, since operators may not look into its log."""
        with suppress(JournalUnsure, JournalRefused, JournalFull):
            if self._journal.identity() is not None:
                self._journal.stand(Standing(self._me, problem=problem), problem_shown_s)

    def _complain(self, text: str) -> None:
        if self._clock() - self._complained_s >= _COMPLAINT_INTERVAL_S:
            self._complained_s = self._clock()
            log.warning("%s", text)

    def _try_to_join(self) -> Joined | None:
        identity = self._journal.identity()
        if self._store.exists():
            return self._with_store(identity)
        if identity is None:
            return self._found()
        self._copy_from_leader(identity)
        return None

    def _found(self) -> Joined | None:
        """Make a store and begin the journal, unless another coordinator is about to."""
        if not self._journal.campaign(self._me, leader_lease_s):
            self._complain("another coordinator begins the journal; waiting for it")
            return None
        try:
            return self._with_store(None)
        finally:
            self._journal.resign()

    def _with_store(self, identity: JournalIdentity | None) -> Joined | None:
        metadata = self._open_store(self._writer)
        try:
            joined = Joined(metadata, self._check(metadata, identity))
            self._greet_leader(joined.identity)
            why_not = self._why_not_followed(metadata)
        except BaseException:
            metadata.close()
            raise
        if why_not is None:
            return joined
        metadata.close()
        self._complain(f"{why_not}: the metadata is copied from the leader anew")
        self._copy_from_leader(joined.identity)
        return None

    def _greet_leader(self, identity: JournalIdentity) -> None:
        """Check before the takeover that datanodes and clients would accept this coordinator."""
        leader = self._journal.leader()
        if leader is None or leader == self._me:
            return
        try:
            self._access.greet(leader, identity.cluster)
        except PeerRefused as refused:
            raise _not_believed(leader, refused) from None
        except PeacefsError as error:
            log.info("the leader %s cannot be reached (%s)", leader.name, error.message)

    def _check(self, metadata: Metadata, identity: JournalIdentity | None) -> JournalIdentity:
        place = metadata.journal_place()
        if identity is None and place.number > 0:
            raise StartupError(
                f"{self._directory} follows a journal that is not there: is --journal that of its cluster? To "
                f"begin another one from this store: `peacefs metadata leave-journal --dir {self._directory}`"
            )
        if identity is None:
            # Write it to the store first. If this is interrupted, the same journal is begun again.
            begun = JournalIdentity(metadata.cluster_id, place.journal or uuid.uuid4().hex)
            metadata.follow(begun.journal)
            identity = self._journal.begin(begun)
            if identity == begun:
                log.warning("a journal was begun for cluster %s", metadata.cluster_id)
                return identity
        if identity.cluster != metadata.cluster_id:
            raise StartupError(
                f"the journal belongs to cluster {identity.cluster}, {self._directory} to {metadata.cluster_id}: "
                "give each cluster a prefix of its own (--journal etcd://a:2379/PREFIX)"
            )
        if place.journal != identity.journal:
            raise StartupError(
                f"{self._directory} is not, or no longer, a part of this journal: it was restored, or changed "
                "without it. To follow the journal, move the directory away and start: it is copied from the "
                "leader. To go on from this store and give up what the journal has, stop all coordinators, then "
                "`peacefs metadata discard-journal --journal ...`"
            )
        return identity

    def _why_not_followed(self, metadata: Metadata) -> str | None:
        """Return why the journal does not continue a store; None if it does."""
        ends, number = self._journal.ends(), metadata.journal_place().number
        if ends is not None and ends[0].number > number + 1:
            return "the journal was trimmed beyond what is here"
        try:
            for last in self._journal.read(number - 1, 1):
                metadata.compare_place(last)
        except JournalDiffers as differs:
            return str(differs)
        return None

    def _copy_from_leader(self, identity: JournalIdentity) -> None:
        leader = self._journal.leader()
        if leader is None or leader == self._me:
            self._complain("waiting for a coordinator that leads, to copy the metadata from")
            return
        try:
            with exact_copies.staged(self._store) as copying:
                self._access.copy(leader, identity.cluster, copying)
        except StartupError:
            raise
        except PeerRefused as refused:
            raise _not_believed(leader, refused) from None
        except PeacefsError as error:
            self._complain(f"the metadata cannot be copied from {leader.name} ({error.message}); trying again")
        else:
            log.warning("the metadata was copied from %s", leader.name)


def _not_believed(leader: Member, refused: PeerRefused) -> StartupError:
    return StartupError(f"{leader.name}, which leads, refuses this coordinator: {refused.message}")
