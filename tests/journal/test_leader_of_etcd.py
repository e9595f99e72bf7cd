"""A journal sends calls to the leading member of etcd, since others would forward them."""

from __future__ import annotations

from pathlib import Path

import httpx
from support.etcd import EtcdMember, etcd_members
from support.waiting import wait_until

from peacefs.coordinator.failover.standings import standing_lives_s
from peacefs.coordinator.journal.port import Member, Standing


def transactions(member: EtcdMember) -> int:
    """Count the transactions that a member has received from clients."""
    lines = httpx.get(f"http://{member.endpoint}/metrics", timeout=180, trust_env=False).text.splitlines()
    told = [line for line in lines if line.startswith("grpc_server_handled_total") and 'method="Txn"' in line]
    return sum(int(float(line.rpartition(" ")[2])) for line in told)


def test_journal_goes_on_with_the_member_that_leads_etcd(tmp_path: Path) -> None:
    with etcd_members(tmp_path, 3) as etcd:
        journal, appended = etcd.journal(), 0
        assert journal.take(0, 1)
        for leader in (etcd.members[2], etcd.members[0]):
            for member in etcd.members:
                if member.leads() and member is not leader:
                    member.hand_over(leader)
            wait_until(leader.leads, "that member leads etcd")
            journal.stand(Standing(Member("a:9870", "a:9820"), 0, 0, True), standing_lives_s)
            before = [transactions(member) for member in etcd.members]
            for _ in range(5):
                appended += 1
                journal.append(1, appended, b"an entry")
            after = [transactions(member) for member in etcd.members]
            came = [later - earlier for earlier, later in zip(before, after, strict=True)]
            assert came == [5 if member is leader else 0 for member in etcd.members]
        journal.close()
