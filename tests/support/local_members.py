"""Wait for the members of a local cluster."""

from __future__ import annotations

from peacefs.client.local_cluster.member_process import LocalMember


def is_gone(member: LocalMember) -> bool:
    return not member.alive
