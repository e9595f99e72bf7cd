"""The journal in etcd. Etcd implements the consensus, the comparisons and the leases.

Keys, below a prefix that names the cluster:

    identity          whose journal it is
    epoch             "<epoch> <owner>", which every append compares
    entry/<number>    an entry, or how many parts it has
    part/<number>/<n> a part of an entry that is longer than etcd takes at once
    leader            who leads, for as long as its lease is renewed
    standing/<name>   how far a coordinator has come, for as long as it is stated
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from peacefs.coordinator.limits import journal_read_bytes_max
from peacefs.protocol.limits import MIB

from .etcd_client import EtcdAccess, EtcdClient
from .etcd_messages_pb2 import (
    Compare,
    DeleteRangeRequest,
    KeyValue,
    PutRequest,
    RangeRequest,
    RequestOp,
    TxnResponse,
)
from .port import (
    Entry,
    Fenced,
    Journal,
    JournalIdentity,
    JournalRefused,
    JournalUnsure,
    Look,
    Member,
    Standing,
)

# etcd accepts requests of 1.5 MiB. A longer entry is cut into parts.
journal_part_bytes_max: Final = MIB


_WHOLE, _PARTED = b"W", b"P"
_DIGITS = 16


class EtcdJournal(Journal):
    """One coordinator's way to the journal below `prefix`."""

    def __init__(self, access: EtcdAccess, prefix: str) -> None:
        self._etcd = EtcdClient(access)
        self._prefix = f"{prefix.rstrip('/')}/"
        #: Distinguishes this process's epoch from the same number taken by another process.
        self._owner = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._leading = 0
        self._standing: tuple[int, float] = (0, 0.0)

    def _key(self, name: str) -> bytes:
        return (self._prefix + name).encode()

    # -- identity ------------------------------------------------------------------------------------

    def identity(self) -> JournalIdentity | None:
        value = self._get(self._key("identity"))
        if value is None:
            return None
        try:
            return msgspec.json.decode(value, type=JournalIdentity)
        except msgspec.DecodeError:
            raise JournalRefused(f"{self._prefix} in etcd holds something else than a journal") from None

    def begin(self, identity: JournalIdentity) -> JournalIdentity:
        key = self._key("identity")
        self._etcd.txn([_is_absent(key)], [_put(key, msgspec.json.encode(identity))])
        begun = self.identity()
        if begun is None:
            raise JournalUnsure("the journal was discarded while it was begun")
        return begun

    def discard(self, identity: JournalIdentity) -> None:
        key = self._key("identity")
        mine = _has_value(key, msgspec.json.encode(identity))
        removed = [_delete(self._key(f"{part}/"), self._key(f"{part}0")) for part in ("entry", "part", "standing")]
        self._etcd.txn([mine], [*removed, _delete(self._key("leader")), _delete(key)])

    # -- entries -------------------------------------------------------------------------------------

    def epoch(self) -> int:
        return _epoch_of(self._get(self._key("epoch")))

    def take(self, old: int, new: int) -> bool:
        key, mine = self._key("epoch"), self._epoch_value(new)
        value = self._get(self._key("epoch"))
        if (0 if value is None else int(value.split()[0])) != old:
            return value == mine
        unchanged = _is_absent(key) if value is None else _has_value(key, value)
        if self._etcd.txn([unchanged], [_put(key, mine)]).succeeded:
            return True
        return self._get(self._key("epoch")) == mine

    def _epoch_value(self, epoch: int) -> bytes:
        return f"{epoch} {self._owner}".encode()

    def append(self, epoch: int, number: int, data: bytes) -> None:
        if len(data) <= journal_part_bytes_max:
            self._append_value(epoch, number, _WHOLE + data)
            return
        parts = [data[at : at + journal_part_bytes_max] for at in range(0, len(data), journal_part_bytes_max)]
        has_epoch = _has_value(self._key("epoch"), self._epoch_value(epoch))
        for place, part in enumerate(parts):
            # A part is never read before its entry exists. Parts without an entry are trimmed.
            if not self._etcd.txn([has_epoch], [_put(self._part_key(number, place), part)]).succeeded:
                raise Fenced(f"epoch {epoch} is over")
        self._append_value(epoch, number, _PARTED + str(len(parts)).encode())

    def _append_value(self, epoch: int, number: int, value: bytes) -> None:
        key, epoch_key, mine = self._entry_key(number), self._key("epoch"), self._epoch_value(epoch)
        outcome = self._etcd.txn(
            [_has_value(epoch_key, mine), _is_absent(key)],
            [_put(key, value)],
            [_get_one(epoch_key), _get_one(key)],
        )
        if outcome.succeeded:
            return
        has, there = _value_of(_pairs(outcome, 0)), _value_of(_pairs(outcome, 1))
        if has != mine:
            begun = "none" if has is None else has.split()[0].decode()
            raise Fenced(f"epoch {epoch} is over: the journal's is {begun}")
        if there != value:
            raise Fenced(f"entry {number} of the journal is another's")

    def read(self, after: int, limit: int) -> list[Entry]:
        return self._entries(self._etcd.range(self._behind(after, limit)).kvs)

    def look(self, after: int, limit: int) -> Look:
        behind = RequestOp(request_range=self._behind(after, limit))
        seen = self._etcd.txn([], [behind, _get_one(self._key("leader")), _get_one(self._key("epoch"))])
        return Look(
            self._entries(_pairs(seen, 0)),
            _leader_of(_value_of(_pairs(seen, 1))),
            _epoch_of(_value_of(_pairs(seen, 2))),
        )

    def _behind(self, after: int, limit: int) -> RangeRequest:
        return RangeRequest(key=self._entry_key(after + 1), range_end=self._key("entry0"), limit=max(1, limit))

    def _entries(self, found: Sequence[KeyValue]) -> list[Entry]:
        entries: list[Entry] = []
        read_bytes = 0
        for pair in found:
            entry = self._entry(pair)
            read_bytes += len(entry.data)
            entries.append(entry)
            if read_bytes >= journal_read_bytes_max:
                break
        return entries

    def ends(self) -> tuple[Entry, Entry] | None:
        begin, end = self._key("entry/"), self._key("entry0")
        first, last = (
            self._etcd.range(RangeRequest(key=begin, range_end=end, limit=1, sort_order=order)).kvs
            for order in (RangeRequest.ASCEND, RangeRequest.DESCEND)
        )
        if not first or not last:
            return None
        return self._entry(first[0]), self._entry(last[0])

    def trim(self, below: int) -> None:
        self._etcd.delete(DeleteRangeRequest(key=self._key("part/"), range_end=self._part_key(below, 0)))
        self._etcd.delete(DeleteRangeRequest(key=self._key("entry/"), range_end=self._entry_key(below)))

    def _entry(self, pair: KeyValue) -> Entry:
        number, value = int(pair.key[-_DIGITS:]), pair.value
        if value[:1] == _WHOLE:
            return Entry(number, value[1:])
        parts = [self._get(self._part_key(number, place)) for place in range(int(value[1:]))]
        if any(part is None for part in parts):
            raise JournalUnsure(f"entry {number} was trimmed while it was read")
        return Entry(number, b"".join(part for part in parts if part is not None))

    def _entry_key(self, number: int) -> bytes:
        return self._key(f"entry/{number:0{_DIGITS}d}")

    def _part_key(self, number: int, place: int) -> bytes:
        return self._key(f"part/{number:0{_DIGITS}d}/{place:06d}")

    # -- who leads -----------------------------------------------------------------------------------

    def campaign(self, me: Member, lease_s: float) -> bool:
        if not self._leading:
            self._leading = self._etcd.grant_lease(lease_s)
        key = self._key("leader")
        put = _put(key, msgspec.json.encode(me), self._leading)
        try:
            outcome = self._etcd.txn([_is_absent(key)], [put], [_get_one(key)])
        except JournalUnsure:
            # The lease may have ended. Another attempt begins with a new lease.
            self._leading = 0
            raise
        if outcome.succeeded or any(there.lease == self._leading for there in _pairs(outcome, 0)):
            return True
        self.resign()
        return False

    def renew(self) -> bool:
        if self._leading and self._etcd.keep_lease(self._leading):
            return True
        self._leading = 0
        return False

    def resign(self) -> None:
        lease, self._leading = self._leading, 0
        if lease:
            self._etcd.revoke_lease(lease)

    def leader(self) -> Member | None:
        return _leader_of(self._get(self._key("leader")))

    def stand(self, standing: Standing, lives_s: float) -> None:
        with self._lock:
            # The standing of a coordinator that did not start must outlive its process.
            lease, seconds = (0, 0.0) if standing.problem else self._standing
            if not lease or seconds != lives_s or not self._etcd.keep_lease(lease):
                lease = self._etcd.grant_lease(lives_s)
                self._standing = (0, 0.0) if standing.problem else (lease, lives_s)
            key = self._key(f"standing/{standing.member.name}")
            self._etcd.txn([], [_put(key, msgspec.json.encode(standing), lease)])
        self._etcd.go_to_leader()

    def standings(self) -> Sequence[Standing]:
        found = self._etcd.range(RangeRequest(key=self._key("standing/"), range_end=self._key("standing0")))
        return [msgspec.json.decode(pair.value, type=Standing) for pair in found.kvs]

    def close(self) -> None:
        with suppress(JournalUnsure, JournalRefused):
            if self._standing[0]:
                self._etcd.revoke_lease(self._standing[0])
        self._etcd.close()

    def _get(self, key: bytes) -> bytes | None:
        return _value_of(self._etcd.range(RangeRequest(key=key)).kvs)


def _is_absent(key: bytes) -> Compare:
    return Compare(key=key, version=0)


def _has_value(key: bytes, value: bytes) -> Compare:
    return Compare(target=Compare.VALUE, key=key, value=value)


def _put(key: bytes, value: bytes, lease: int = 0) -> RequestOp:
    return RequestOp(request_put=PutRequest(key=key, value=value, lease=lease))


def _get_one(key: bytes) -> RequestOp:
    return RequestOp(request_range=RangeRequest(key=key))


def _delete(key: bytes, end: bytes = b"") -> RequestOp:
    return RequestOp(request_delete_range=DeleteRangeRequest(key=key, range_end=end))


def _pairs(outcome: TxnResponse, at: int) -> Sequence[KeyValue]:
    """Return what a range of a transaction found. Raises IndexError."""
    found: Sequence[KeyValue] = outcome.responses[at].response_range.kvs
    return found


def _value_of(found: Sequence[KeyValue]) -> bytes | None:
    """Return the value of the one requested key; None if it is absent."""
    return found[0].value if found else None


def _leader_of(value: bytes | None) -> Member | None:
    return None if value is None else msgspec.json.decode(value, type=Member)


def _epoch_of(value: bytes | None) -> int:
    return 0 if value is None else int(value.split()[0])
