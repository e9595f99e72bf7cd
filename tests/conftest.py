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

# A shell's background job is started with SIGINT ignored, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The configuration of whoever runs the tests is not theirs.
os.environ["PEACEFS_CONFIG"] = ""

# No test reaches anybody whose certificate a public authority has signed, and to read the certificates of those
# takes each new client of httpx 20 ms: here it finds a directory without any. Where the environment does not count
# either (`trust_env=False`), tests do without by `verify=False`.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = str(Path(__file__).parent)

set_options()


@functools.cache
def _declared(application: typer.Typer, _commands: int, _groups: int) -> Any:
    """Declare all of its commands, which takes 60 ms."""
    return get_command(application)


# A test that runs commands in its own process has them declared once, not for each.
typer.testing._get_command = lambda application: _declared(
    application, len(application.registered_commands), len(application.registered_groups)
)


def pytest_collection_finish() -> None:
    """Leave modules and tests, which stay until the end, out of what is searched for garbage again and again."""
    gc.collect()
    gc.freeze()
    # Few objects need a search to be freed; one for every 700 new ones is too often for that.
    gc.set_threshold(5000, 10, 10)


_classes_shared = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Before the first test that starts a JVM, and before its timeout begins."""
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
