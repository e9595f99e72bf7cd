"""Members of a local cluster, as tests wait for them."""

from __future__ import annotations

from peacefs.client.local_cluster.member_process import LocalMember


def is_gone(member: LocalMember) -> bool:
    return not member.alive
