"""Property tests try the same examples in every run; `--hypothesis-profile=explore` tries new ones."""

import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import settings
from support.java_options import set_options
from support.prepared_starts import prepare, started_anew

pytest_plugins = ("support.cluster_fixtures",)

settings.register_profile("repeatable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile("repeatable")

# A shell's background job is started with SIGINT ignored, and what the tests start would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The configuration of whoever runs the tests is not theirs.
os.environ["PEACEFS_CONFIG"] = ""

set_options()

_classes_shared = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    """Before the first test that starts a JVM, and before its timeout begins."""
    config = item.config
    cache = getattr(config, "cache", None)  # None with `-p no:cacheprovider`
    if item.get_closest_marker("spark") and _classes_shared not in config.stash and cache is not None:
        from support.class_archive import share_classes

        config.stash[_classes_shared] = True
        share_classes(cache.mkdir("spark-classes"))
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
