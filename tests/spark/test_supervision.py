"""A Spark query with a standby: its node dies in the middle, and its output is as without a failure."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest
from support.java_options import given_options
from support.long_runs import often
from support.prometheus import scraped
from support.supervised_world import World, accounts_of_tests
from support.waiting import wait_until

from peacefs.client.control.supervised_queries import SupervisedQueries
from peacefs.spark_connector.java import find_java, java_environment
from peacefs.spark_connector.supervision.registration import supervise

pytestmark = [pytest.mark.spark, pytest.mark.cluster]

SCRIPT = Path(__file__).parent.parent / "support" / "counting_query.py"
PARTS = often(5, 12)
#: The batch after which the query's node dies.
LAST_OF_NORTH = often(1, 3)


@pytest.mark.timeout(300)
@pytest.mark.long("a minute; tests/services/test_supervised_queries.py has it without Spark")
@pytest.mark.evidence("query-node-dies")
def test_spark_query_whose_node_dies_is_finished_by_its_standby_with_the_exact_result(tmp_path: Path) -> None:
    source, output = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    output.mkdir()
    words: Counter[str] = Counter()
    for part in range(PARTS):
        lines = [f"word-{(part * 7 + row) % 11}" for row in range(50)]
        words.update(lines)
        (source / f"{part:02}.txt").write_text("".join(f"{line}\n" for line in lines))
    variables = {
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        **java_environment(find_java(), tmp_path / "java"),
        **given_options(),
    }
    environment = ", ".join(f"{name} = {json.dumps(value)}" for name, value in variables.items())
    commands = f"""
        [commands.words]
        program = "{sys.executable}"
        arguments = ["-P", "{SCRIPT}", "--supervised", "{{checkpoint}}", "{source}", "{output}"]
        environment = {{ {environment} }}
        {accounts_of_tests()}
    """
    with World.running(tmp_path) as world, SupervisedQueries(world.cluster.http_address) as queries:
        world.agent("north", commands)
        coordinator = world.cluster.http_address
        supervise(["words"], coordinator=coordinator, checkpoint="/checkpoints/words", standby=True)
        world.agent("south", commands)
        wait_until(lambda: queries.status("words").standby == "ready", "its standby has a session")
        assert (queries.status("words").agent, queries.status("words").standby_agent) == ("north", "south")
        wait_until(lambda: (output / str(LAST_OF_NORTH)).exists(), "the query makes progress")
        os.kill(world.agents["north"].pid, signal.SIGKILL)
        wait_until(lambda: queries.status("words").agent == "south", "its standby goes on")
        wait_until(lambda: queries.status("words").phase == "ended", "it comes to its end")
        assert queries.status("words").restarts == 1
        told = scraped(coordinator.removeprefix("http://"))
        assert told["peacefs_supervised_runs_taken_over_total", ""] == 1
    batches = sorted(int(path.name) for path in output.iterdir() if path.suffix == "")
    # Spark records a file before the batch that reads it. Killed in between, it reads that file and the next in
    # one batch.
    assert batches == list(range(len(batches))) and len(batches) in (PARTS - 1, PARTS)
    assert json.loads((output / str(batches[-1])).read_text()) == words
