"""Answers of REST are decoded to values, and requests carry the user's identity."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from peacefs.client.control.addresses import CoordinatorAddress
from peacefs.client.control.api import CoordinatorApi, current_user
from peacefs.client.control.http import CoordinatorHttp
from peacefs.client.control.retry import RetryPolicy
from peacefs.protocol.errors import PeerRefused


def api_answered_with(reply: dict[str, Any]) -> CoordinatorApi:
    """Return a client whose coordinator gives this answer to everything."""
    http = CoordinatorHttp(
        CoordinatorAddress("c.example", 9870),
        RetryPolicy(sleep=lambda _s: None),
        transport=httpx.MockTransport(lambda _request: httpx.Response(200, content=json.dumps(reply).encode())),
    )
    return CoordinatorApi(http, "alice")


def test_snapshot_differences_are_read_with_where_a_renamed_file_went() -> None:
    told = {"sourcePath": "a", "targetPath": "b", "type": "RENAME"}
    api = api_answered_with({"SnapshotDiffReport": {"diffList": [told]}})
    (found,) = api.snapshot_diff("/dir", "s1", "s2")
    assert (found.type, found.source_path, found.target_path) == ("RENAME", "a", "b")


def test_answers_that_make_no_sense_are_faults_and_not_values() -> None:
    with pytest.raises(PeerRefused, match="does not answer like a peacefs coordinator"):
        api_answered_with({"racks": "seven"}).network()


def test_user_name_is_hadoops_variable_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HADOOP_USER_NAME", "spark")
    assert current_user() == "spark"
    monkeypatch.delenv("HADOOP_USER_NAME")
    monkeypatch.setenv("LOGNAME", "bob")
    assert current_user() == "bob"
