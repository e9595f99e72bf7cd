"""One writer at a time, until it has been silent for too long."""

from __future__ import annotations

import pytest

from peacefs.coordinator.metadata.model import Lease
from peacefs.coordinator.operations.leases import Leases, lease_s
from peacefs.protocol.errors import AlreadyBeingCreated, LeaseExpired

ANN, BOB = Lease(1, "ann"), Lease(2, "bob")
FILE = 77


@pytest.fixture
def leases() -> Leases:
    """Return the leases of a coordinator that started long before time 0."""
    return Leases(-1000.0)


def is_free(leases: Leases, now_s: float, holder: str = "bob", recorded: Lease | None = ANN) -> bool:
    try:
        leases.check_free(now_s, FILE, recorded, holder, "APPEND_FILE /f for bob")
    except AlreadyBeingCreated:
        return False
    return True


# Written by hand: when the holder was last heard, when another one asks, and whether it gets the lease.
@pytest.mark.parametrize(
    ("heard_s", "asked_s", "free"),
    [(0.0, 0.0, False), (0.0, 59.9, False), (0.0, 60.0, True), (50.0, 109.0, False), (50.0, 110.0, True)],
)
def test_another_may_take_the_lease_once_its_holder_is_silent(
    leases: Leases, heard_s: float, asked_s: float, free: bool
) -> None:
    leases.hold(0.0, FILE, ANN)
    leases.renew(heard_s, FILE, ANN, ANN)
    assert is_free(leases, asked_s) is free


def test_a_refusal_says_who_has_the_lease_in_hdfss_words(leases: Leases) -> None:
    leases.hold(0.0, FILE, ANN)
    words = "Failed to APPEND_FILE /f for bob because this file lease is currently owned by ann"
    with pytest.raises(AlreadyBeingCreated, match=words):
        leases.check_free(1.0, FILE, ANN, "bob", "APPEND_FILE /f for bob")


def test_the_holder_itself_and_other_files_are_free(leases: Leases) -> None:
    leases.hold(0.0, FILE, ANN)
    assert is_free(leases, 1.0, holder="ann")
    leases.check_free(1.0, FILE + 1, None, "bob", "")


def test_a_lease_that_was_released_is_free_and_releasing_is_the_holders_alone(leases: Leases) -> None:
    leases.hold(0.0, FILE, ANN)
    leases.release(FILE, BOB)
    assert not is_free(leases, 1.0)
    leases.release(FILE, ANN)
    assert is_free(leases, 1.0)


def test_a_holder_that_was_silent_goes_on_unless_somebody_has_taken_over(leases: Leases) -> None:
    leases.hold(0.0, FILE, ANN)
    leases.renew(10 * lease_s, FILE, ANN, ANN)
    assert not is_free(leases, 10 * lease_s + 1)
    leases.hold(20 * lease_s, FILE, BOB)
    for recorded in (ANN, BOB, None):
        with pytest.raises(LeaseExpired, match="ann"):
            leases.renew(20 * lease_s, FILE, ANN, recorded)
    assert is_free(leases, 20 * lease_s, holder="bob")


def test_a_coordinator_that_has_just_started_waits_for_the_holder_on_record() -> None:
    leases = Leases(0.0)
    assert is_free(leases, 1.0, recorded=None)
    assert not is_free(leases, lease_s - 1.0)
    assert is_free(leases, lease_s)
    leases.renew(lease_s - 1.0, FILE, ANN, ANN)
    assert not is_free(leases, lease_s + 1.0), "it has said that it is there"


def test_standby_that_begins_to_lead_waits_for_the_holder_on_record(leases: Leases) -> None:
    leases.lead(100.0)
    assert not is_free(leases, 100.0 + lease_s - 1.0)
    assert is_free(leases, 100.0 + lease_s)


def test_lease_that_is_not_on_record_cannot_be_renewed_after_a_restart() -> None:
    for recorded in (None, BOB):
        with pytest.raises(LeaseExpired):
            Leases(0.0).renew(1.0, FILE, ANN, recorded)


def test_lease_that_is_committed_with_its_file_is_respected_before_it_is_held(leases: Leases) -> None:
    """The metadata has the lease a moment before the holder is recorded."""
    with leases.beginning(ANN):
        assert not is_free(leases, 1.0)
        assert is_free(leases, 1.0, recorded=Lease(3, "carl"))
        leases.hold(1.0, FILE, ANN)
    assert not is_free(leases, 1.0)
    with leases.beginning(ANN):
        leases.forget(FILE)
    assert is_free(leases, 1.0), "one that was not committed is nobody's"
