"""The data behind a coordinator's status, for tests of REST without a service."""

from __future__ import annotations

from support.play import Play

from peacefs.coordinator.api.rest.status import StatusSources


def status_sources(play: Play) -> StatusSources:
    """Return sources for the cluster of a play."""
    return StatusSources(
        cluster=play.cluster,
        cluster_id="c",
        epoch=lambda: 1,
        address=lambda: "here:1",
        gc_floor_held=bool,
        lacks_commits=bool,
        metadata_room=int,
        clock=lambda: play.now_s,
        failover=lambda: None,
    )
