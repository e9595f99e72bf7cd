"""Property tests try the same examples in every run; `--hypothesis-profile=explore` tries new ones."""

import functools
import gc
import os
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
import typer.testing
from hypothesis import settings
from support.java_options import set_options
from support.long_runs import often
from support.prepared_starts import prepare, started_anew
from typer.main import get_command

pytest_plugins = ("support.open_root", "support.cluster_fixtures", "support.executors")

settings.register_profile(
    "repeatable", max_examples=often(40, 100), derandomize=True, deadline=None, print_blob=True
)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("repeatable")

# A shell starts background jobs with SIGINT ignored, which the tests' child processes would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Ignore the configuration of the user who runs the tests.
os.environ["PEACEFS_CONFIG"] = ""

# No test connects to a server with a publicly signed certificate, and each new httpx client spends 20 ms on
# reading the system's certificates. Point it to a directory without certificates. Tests that ignore the
# environment (`trust_env=False`) use `verify=False`.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

set_options()


@functools.cache
def _declared(application: typer.Typer, _commands: int, _groups: int) -> Any:
    """Return the command with all its subcommands, which takes 60 ms to build."""
    return get_command(application)


# Build the commands only once for all tests that run commands in this process.
typer.testing._get_command = lambda application: _declared(
    application, len(application.registered_commands), len(application.registered_groups)
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip long tests, unless they are asked for."""
    for item in items:
        mark = item.get_closest_marker("long")
        if mark is not None and not often(0, 1):
            item.add_marker(pytest.mark.skip(reason=f"{mark.args[0]}: PEACEFS_LONG=1"))


def pytest_collection_finish() -> None:
    """Exclude modules and tests, which live until the end, from garbage collections."""
    gc.collect()
    gc.freeze()
    # Few objects need the collector to be freed; the default of one collection per 700 new objects is too often.
    gc.set_threshold(5000, 10, 10)


_classes_shared = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Prepare shared classes before the first test that starts a JVM, outside of its timeout."""
    config = item.config
    cache = getattr(config, "cache", None)  # None with `-p no:cacheprovider`
    if item.get_closest_marker("spark") and _classes_shared not in config.stash and cache is not None:
        from support.class_archive import DIRECTORY, share_classes

        config.stash[_classes_shared] = True
        share_classes(cache.mkdir(DIRECTORY))
    if item.get_closest_marker("fresh_processes") is None:
        return (yield)
    with started_anew():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop() -> Generator[None, Any, Any]:
    with prepare():
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from support.parallel import Spread

    return Spread(config, log)
