"""When uploads become visible, are flushed and renewed; begun names; uploads by name. Only the decisions."""

from __future__ import annotations

import asyncio
from math import inf

import pytest

from peacefs.coordinator.operations.under_construction import BegunName, BegunNames
from peacefs.datanode.gateway.flush_times import FlushStep, FlushTimes, upload_age_s_max, upload_token_renewal_s
from peacefs.datanode.gateway.open_uploads import OpenUploads
from peacefs.datanode.limits import upload_pause_s
from peacefs.protocol.limits import lease_renewal_s
from peacefs.protocol.messages import FlushUploads


def new_file(**kwargs):
    return FlushTimes(100.0, **({"may_appear": True, "has_lease": False} | kwargs))


def test_file_is_shown_when_its_body_has_come_for_a_moment():
    times = new_file()
    times.received(100.0)
    assert times.due(100.0 + upload_pause_s / 2, is_long=False) is None
    assert times.next_s(is_long=False) == 100.0 + upload_pause_s
    assert times.due(100.0 + upload_pause_s, is_long=True) is FlushStep.SHOW


def test_file_that_replaces_another_is_never_shown():
    times = new_file(may_appear=False)
    times.received(100.0)
    assert times.next_s(is_long=False) == inf
    late = new_file()
    late.hidden()
    assert late.due(1e9, is_long=False) is None


def test_pause_flushes_what_has_come_and_nothing_is_flushed_twice():
    times = new_file()
    times.shown(101.0)
    assert times.due(105.0, is_long=False) is None
    times.received(105.0)
    times.received(105.5)
    assert times.due(106.4, is_long=False) is None
    assert times.due(106.5, is_long=False) is FlushStep.FLUSH
    times.taken()
    times.flushed(106.6)
    assert times.due(110.0, is_long=False) is None


def test_trickle_without_a_pause_is_flushed_when_its_oldest_byte_is_old():
    times = new_file()
    times.shown(101.0)
    now_s = 102.0
    while times.due(now_s, is_long=False) is not FlushStep.FLUSH:
        times.received(now_s)
        now_s += upload_pause_s / 3
    assert upload_age_s_max <= now_s - 102.0 <= upload_age_s_max + upload_pause_s
    assert times.due(now_s, is_long=True) is None, "a long part goes on until it pauses"


def test_idle_writer_renews_its_lease_and_now_and_then_its_token():
    times = new_file()
    times.shown(101.0)
    assert times.due(101.0 + lease_renewal_s, is_long=False) is FlushStep.RENEW
    times.renewed(101.0 + lease_renewal_s)
    assert times.due(102.0 + lease_renewal_s, is_long=False) is None
    times.renewed(101.0 + upload_token_renewal_s)
    assert times.due(101.0 + upload_token_renewal_s, is_long=False) is FlushStep.FLUSH


def test_step_that_failed_is_tried_again_after_a_pause():
    times = new_file()
    times.failed(105.0)
    assert times.due(105.5, is_long=False) is None
    assert times.due(105.0 + upload_pause_s, is_long=False) is FlushStep.SHOW


def begun(path, upload, at_s=0.0):
    return BegunName(tuple(path.strip("/").split("/")), upload, "dn-1", at_s)


def uploads(found):
    return [one.upload for one in found]


def test_begun_names_are_found_by_name_by_directory_and_by_tree():
    names = BegunNames()
    for number, path in enumerate(("/a/b", "/a/c/d", "/a", "/e")):
        names.begin(begun(path, str(number)))
    assert uploads(names.at(1.0, ("a", "b"))) == ["0"]
    assert uploads(names.listed(1.0, ("a",))) == ["0", "2"]
    assert uploads(names.listed(1.0, ())) == ["2", "3"]
    assert uploads(names.within(1.0, ("a",))) == ["0", "1", "2"]
    names.end("1")
    assert uploads(names.within(1.0, ("a",))) == ["0", "2"]


def test_begun_names_are_forgotten_when_they_are_old_or_too_many():
    names = BegunNames(names_max=3, kept_s=10.0)
    for number in range(5):
        names.begin(begun(f"/{number}", str(number), number))
    assert len(names) == 3
    assert names.at(5.0, ("1",)) == [] and uploads(names.at(5.0, ("2",))) == ["2"]
    assert names.at(12.0, ("2",)) == [], "its body never came"
    names.begin(begun("/9", "9", 100.0))
    assert len(names) == 1


def test_begun_name_whose_body_was_missed_is_waited_for_once():
    names = BegunNames()
    names.begin(begun("/a", "1"))
    assert names.is_awaited("1", 0.2)
    names.missed("1", 0.2)
    assert not names.is_awaited("1", 0.2)
    assert names.is_awaited("1", 2.0), "who looks for it by name waits longer"
    names.missed("1", 2.0)
    names.missed("1", 0.0)
    assert not names.is_awaited("1", 2.0)
    assert uploads(names.at(1.0, ("a",))) == ["1"], "it may still come"


class Shown:
    """An upload that may be visible."""

    def __init__(self, is_shown=True):
        self.is_shown = is_shown

    async def show(self):
        return self.is_shown


def test_upload_that_is_asked_for_before_it_comes_is_waited_for():
    async def story():
        open_uploads = OpenUploads()
        asked = asyncio.create_task(open_uploads.flush(FlushUploads(["soon", "never"], 0.2)))
        await asyncio.sleep(0)
        with open_uploads.entered(Shown(), "soon", "its holder"):
            assert (await asked).missing == ["never"]
            assert (await open_uploads.flush(FlushUploads(["its holder"], 0.0))).missing == []
        # The upload has ended, so the gateway does not wait for it.
        async with asyncio.timeout(60):
            assert (await open_uploads.flush(FlushUploads(["soon"], 3600.0))).missing == ["soon"]

    asyncio.run(story())


@pytest.mark.parametrize("is_shown", [True, False])
def test_upload_that_will_appear_whole_is_said_to_be_missing(is_shown):
    async def story():
        open_uploads = OpenUploads()
        with open_uploads.entered(Shown(is_shown), "one"):
            missing = (await open_uploads.flush(FlushUploads(["one"], 0.0))).missing
        assert missing == ([] if is_shown else ["one"])

    asyncio.run(story())
