"""The audit log has one line per request that cannot be forged; a failing disk stops nothing."""

from __future__ import annotations

import json
import logging
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from peacefs.coordinator import audit_log
from peacefs.coordinator.audit_log import AuditLog, AuditRecord
from peacefs.protocol.errors import StartupError


def record(source: str = "/a", **other: Any) -> AuditRecord:
    fields = {
        "user": "ann",
        "auth": "simple",
        "address": "10.0.0.1",
        "operation": "OPEN",
        "source": source,
        "destination": None,
        "permission": None,
        "protocol": "webhdfs",
        "allowed": True,
        "error": None,
        "request_id": None,
        "seconds": 0.0125,
    }
    return AuditRecord(**{**fields, **other})


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("ascii").splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit.log"


@pytest.fixture
def log(path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditLog]:
    monkeypatch.setattr(audit_log, "audit_retry_s", 0.02)
    opened = AuditLog(path, wall_clock=lambda: 1_700_000_000.5)
    yield opened
    opened.close()


def test_audit_line_has_the_names_of_hdfs_and_is_for_its_owner_alone(log: AuditLog, path: Path) -> None:
    log.record(record("/a b", destination="/c", permission="0755", request_id="r-1"))
    log.close()
    assert lines(path) == [
        {
            "time": "2023-11-14T22:13:20.500+00:00",
            "allowed": True,
            "outcome": "allowed",
            "error": None,
            "ugi": "ann",
            "auth": "simple",
            "ip": "10.0.0.1",
            "cmd": "OPEN",
            "src": "/a b",
            "dst": "/c",
            "perm": "0755",
            "proto": "webhdfs",
            "id": "r-1",
            "ms": 12.5,
        }
    ]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "name",
    ['/a\n{"allowed":true}', "/a\r\nallowed=true", "/\x1b[2J\x7f\x85\u2028\u2029", '/"}', "/\ud800", "/日本\0"],
)
def test_audit_line_cannot_be_forged_by_a_name(log: AuditLog, path: Path, name: str) -> None:
    log.record(record(name, user=name, destination=name, operation=name, request_id=name))
    log.record(record())
    log.close()
    raw = path.read_bytes()
    assert raw.count(b"\n") == 2 and all(32 <= byte < 127 or byte == 10 for byte in raw)
    first, second = lines(path)
    assert (first["src"], first["ugi"], second["src"]) == (name, name, "/a")


def test_audit_line_tells_refusals_of_rights_from_other_failures(log: AuditLog, path: Path) -> None:
    log.record(record(allowed=False, error="AccessDenied"))
    log.record(record(error="FileNotFound"))
    log.record(record("/" + "x" * 100_000))
    log.close()
    told = lines(path)
    assert [(each["outcome"], each["allowed"]) for each in told] == [
        ("denied", False),
        ("error", True),
        ("allowed", True),
    ]
    assert len(told[2]["src"]) == 8000


@pytest.mark.parametrize("is_told", [True, False], ids=["SIGHUP", "moved alone"])
def test_audit_log_goes_on_in_a_new_file_when_it_is_rotated(log: AuditLog, path: Path, is_told: bool) -> None:
    log.record(record("/before"))
    wait_until(lambda: log.written == 1, "the first line is missing")
    old = path.rename(path.with_suffix(".1"))
    if is_told:
        log.reopen()
    log.record(record("/after"))
    log.close()
    assert [each["src"] for each in lines(old)] == ["/before"]
    assert [each["src"] for each in lines(path)] == ["/after"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_audit_log_that_cannot_be_written_loses_nothing_within_its_bound_and_says_so(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(audit_log, "audit_retry_s", 0.02)
    path.symlink_to("/dev/full")
    log = AuditLog(path)
    with caplog.at_level(logging.INFO):
        for number in range(3):
            log.record(record(f"/{number}"))
        wait_until(lambda: "cannot be written (No space left on device)" in caplog.text, "nothing is said")
        monkeypatch.setattr(audit_log, "audit_waiting_bytes_max", 0)
        log.record(record("/too much"))
        assert log.lost == 1
        # There is space again.
        path.unlink()
        wait_until(lambda: log.written == 3, "the lines that waited are not written")
    monkeypatch.undo()
    log.record(record("/after"))
    log.close()
    told = lines(path)
    assert [each.get("src", each.get("lost")) for each in told] == [1, "/0", "/1", "/2", "/after"]
    assert caplog.text.count("cannot be written") == 1
    assert "can be written again; 1 records were lost" in caplog.text


def test_audit_log_never_holds_up_its_end_and_counts_what_is_lost_then(path: Path) -> None:
    path.symlink_to("/dev/full")
    log = AuditLog(path)
    log.record(record())
    log.close()
    assert (log.written, log.lost) == (0, 1)


def test_audit_log_that_can_never_be_there_is_said_at_the_start(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "audit.log", tmp_path):
        with pytest.raises(StartupError, match="cannot open the audit log"):
            AuditLog(path)
