"""Judge whether a coordinator lives, and whether it is ready to serve. Pure."""

from __future__ import annotations

from typing import Final

import msgspec

# Age of the last tick after which the coordinator reports itself as stuck. A busy machine delays ticks much less.
tick_silence_s_max: Final = 30.0


class Condition(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that health is judged by. `tick_age_s` is the time since the background work was last done."""

    tick_age_s: float
    leads: bool = True
    somebody_leads: bool = True
    has_loaded: bool = True
    is_ready: bool = True
    has_room: bool = True
    commits_missing: bool = False


class Health(msgspec.Struct, frozen=True):
    """The answer of `/health/live` and `/health/ready`. It contains neither names nor paths."""

    ok: bool
    #: leader or standby.
    role: str
    problems: list[str]


def live(condition: Condition) -> Health:
    """Judge whether the process works. If not, it should be restarted."""
    return _judged(condition, _stuck(condition))


def ready(condition: Condition) -> Health:
    """Judge whether clients should be sent here."""
    problems = _stuck(condition)
    if not condition.leads:
        problems.append(
            "standby: another coordinator leads" if condition.somebody_leads else "standby: nobody leads now"
        )
    elif not condition.has_loaded:
        problems.append("starting: the chunks of the metadata are being read")
    elif not condition.is_ready:
        problems.append("starting: datanodes have still to say what they hold")
    if not condition.has_room:
        problems.append("disk full: names can be read, and nothing can be changed")
    if condition.commits_missing:
        problems.append("commits are missing: names can be read, and nothing can be changed")
    return _judged(condition, problems)


def _stuck(condition: Condition) -> list[str]:
    if condition.tick_age_s <= tick_silence_s_max:
        return []
    return [f"stuck: the background work was last done {condition.tick_age_s:.0f} s ago"]


def _judged(condition: Condition, problems: list[str]) -> Health:
    return Health(not problems, "leader" if condition.leads else "standby", problems)
