"""The journal in etcd, which does consensus, comparison and leases; nothing of these is ours.

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
from typing import Any, Final

import msgspec

from peacefs.coordinator.limits import journal_read_bytes_max
from peacefs.protocol.limits import MIB

from .etcd_gateway import EtcdAccess, EtcdGateway, Range, key_of, value_of
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

# etcd takes requests of 1.5 MiB: a longer entry is cut into parts.
journal_part_bytes_max: Final = MIB


_WHOLE, _PARTED = b"W", b"P"
_DIGITS = 16


class EtcdJournal(Journal):
    """One coordinator's way to the journal below `prefix`."""

    def __init__(self, access: EtcdAccess, prefix: str) -> None:
        self._etcd = EtcdGateway(access)
        self._prefix = f"{prefix.rstrip('/')}/"
        #: Tells this process's epoch from the same number in another's hands.
        self._owner = uuid.uuid4().hex
        self._lock = threading.Lock()
        self._leading = 0
        self._standing: tuple[int, float] = (0, 0.0)

    def _key(self, name: str) -> str:
        return self._prefix + name

    # -- whose it is ---------------------------------------------------------------------------------

    def identity(self) -> JournalIdentity | None:
        value = self._get("identity")
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
        return _epoch_of(self._get("epoch"))

    def take(self, old: int, new: int) -> bool:
        key, mine = self._key("epoch"), self._epoch_value(new)
        value = self._get("epoch")
        if (0 if value is None else int(value.split()[0])) != old:
            return value == mine
        unchanged = _is_absent(key) if value is None else _has_value(key, value)
        if self._etcd.txn([unchanged], [_put(key, mine)]).succeeded:
            return True
        return self._get("epoch") == mine

    def _epoch_value(self, epoch: int) -> bytes:
        return f"{epoch} {self._owner}".encode()

    def append(self, epoch: int, number: int, data: bytes) -> None:
        if len(data) <= journal_part_bytes_max:
            self._append_value(epoch, number, _WHOLE + data)
            return
        parts = [data[at : at + journal_part_bytes_max] for at in range(0, len(data), journal_part_bytes_max)]
        has_epoch = _has_value(self._key("epoch"), self._epoch_value(epoch))
        for place, part in enumerate(parts):
            # Nobody reads a part before its entry is there; what is left of one that never came is trimmed.
            if not self._etcd.txn([has_epoch], [_put(self._part_key(number, place), part)]).succeeded:
                raise Fenced(f"epoch {epoch} is over")
        self._append_value(epoch, number, _PARTED + str(len(parts)).encode())

    def _append_value(self, epoch: int, number: int, value: bytes) -> None:
        key, has_epoch = self._entry_key(number), (self._key("epoch"), self._epoch_value(epoch))
        if self._etcd.put_if(has_epoch, key, value):
            return
        outcome = self._etcd.txn(
            [_has_value(*has_epoch), _is_absent(key)],
            [_put(key, value)],
            [_get_one(self._key("epoch")), _get_one(key)],
        )
        if outcome.succeeded:
            return
        has, there = outcome.read(0), outcome.read(1)
        if has is None or has.value != self._epoch_value(epoch):
            begun = "none" if has is None else has.value.split()[0].decode()
            raise Fenced(f"epoch {epoch} is over: the journal's is {begun}")
        if there is None or there.value != value:
            raise Fenced(f"entry {number} of the journal is another's")

    def read(self, after: int, limit: int) -> list[Entry]:
        return self._entries(self._etcd.range(**self._behind(after, limit)))

    def look(self, after: int, limit: int) -> Look:
        behind = {"request_range": self._behind(after, limit)}
        seen = self._etcd.txn([], [behind, _get_one(self._key("leader")), _get_one(self._key("epoch"))])
        leader, epoch = seen.read(1), seen.read(2)
        return Look(
            self._entries(seen.responses[0].response_range),
            _leader_of(None if leader is None else leader.value),
            _epoch_of(None if epoch is None else epoch.value),
        )

    def _behind(self, after: int, limit: int) -> dict[str, Any]:
        return {
            "key": key_of(self._entry_key(after + 1)),
            "range_end": key_of(self._key("entry0")),
            "limit": max(1, limit),
        }

    def _entries(self, found: Range) -> list[Entry]:
        entries: list[Entry] = []
        read_bytes = 0
        for pair in found.kvs:
            entry = self._entry(pair.key, pair.value)
            read_bytes += len(entry.data)
            entries.append(entry)
            if read_bytes >= journal_read_bytes_max:
                break
        return entries

    def ends(self) -> tuple[Entry, Entry] | None:
        begin, end = key_of(self._key("entry/")), key_of(self._key("entry0"))
        first = self._etcd.range(key=begin, range_end=end, limit=1, sort_order="ASCEND", sort_target="KEY").kvs
        last = self._etcd.range(key=begin, range_end=end, limit=1, sort_order="DESCEND", sort_target="KEY").kvs
        if not first or not last:
            return None
        return self._entry(first[0].key, first[0].value), self._entry(last[0].key, last[0].value)

    def trim(self, below: int) -> None:
        self._etcd.delete(self._key("part/"), self._part_key(below, 0))
        self._etcd.delete(self._key("entry/"), self._entry_key(below))

    def _entry(self, key: bytes, value: bytes) -> Entry:
        number = int(key[-_DIGITS:])
        if value[:1] == _WHOLE:
            return Entry(number, value[1:])
        parts = [self._get(self._part_key(number, place), is_whole_key=True) for place in range(int(value[1:]))]
        if any(part is None for part in parts):
            raise JournalUnsure(f"entry {number} was trimmed while it was read")
        return Entry(number, b"".join(part for part in parts if part is not None))

    def _entry_key(self, number: int) -> str:
        return self._key(f"entry/{number:0{_DIGITS}d}")

    def _part_key(self, number: int, place: int) -> str:
        return self._key(f"part/{number:0{_DIGITS}d}/{place:06d}")

    # -- who leads -----------------------------------------------------------------------------------

    def campaign(self, me: Member, lease_s: float) -> bool:
        if not self._leading:
            self._leading = self._etcd.grant_lease(lease_s)
        key = self._key("leader")
        put = _put(key, msgspec.json.encode(me))
        put["request_put"]["lease"] = self._leading
        try:
            outcome = self._etcd.txn([_is_absent(key)], [put], [_get_one(key)])
        except JournalUnsure:
            # The lease may be over by now: another try begins with another.
            self._leading = 0
            raise
        there = None if outcome.succeeded else outcome.read()
        if outcome.succeeded or (there is not None and there.lease == self._leading):
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
        return _leader_of(self._get("leader"))

    def stand(self, standing: Standing, lives_s: float) -> None:
        with self._lock:
            lease, seconds = self._standing
            if not lease or seconds != lives_s or not self._etcd.keep_lease(lease):
                lease = self._etcd.grant_lease(lives_s)
                self._standing = lease, lives_s
            put = _put(self._key(f"standing/{standing.member.name}"), msgspec.json.encode(standing))
            put["request_put"]["lease"] = lease
            self._etcd.txn([], [put])
        self._etcd.go_to_leader()

    def standings(self) -> Sequence[Standing]:
        found = self._etcd.range(key=key_of(self._key("standing/")), range_end=key_of(self._key("standing0")))
        return [msgspec.json.decode(pair.value, type=Standing) for pair in found.kvs]

    def close(self) -> None:
        with suppress(JournalUnsure, JournalRefused):
            if self._standing[0]:
                self._etcd.revoke_lease(self._standing[0])
        self._etcd.close()

    def _get(self, name: str, *, is_whole_key: bool = False) -> bytes | None:
        found = self._etcd.range(key=key_of(name if is_whole_key else self._key(name))).kvs
        return found[0].value if found else None


def _is_absent(key: str) -> dict[str, Any]:
    return {"key": key_of(key), "target": "VERSION", "result": "EQUAL", "version": 0}


def _has_value(key: str, value: bytes) -> dict[str, Any]:
    return {"key": key_of(key), "target": "VALUE", "result": "EQUAL", "value": value_of(value)}


def _put(key: str, value: bytes) -> dict[str, Any]:
    return {"request_put": {"key": key_of(key), "value": value_of(value)}}


def _get_one(key: str) -> dict[str, Any]:
    return {"request_range": {"key": key_of(key)}}


def _delete(key: str, end: str | None = None) -> dict[str, Any]:
    wanted = {"key": key_of(key)}
    if end is not None:
        wanted["range_end"] = key_of(end)
    return {"request_delete_range": wanted}


def _leader_of(value: bytes | None) -> Member | None:
    return None if value is None else msgspec.json.decode(value, type=Member)


def _epoch_of(value: bytes | None) -> int:
    return 0 if value is None else int(value.split()[0])
