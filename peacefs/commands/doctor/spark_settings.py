"""Judge the settings of a spark-defaults.conf against those that `peacefs spark conf` prints. Pure.

The file may contain passwords and tokens, so its values are never shown.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from .facts import Diagnosis, Spark, Urgency, WantedSetting

_CHECKPOINT_LOCATION = "spark.sql.streaming.checkpointLocation"


def parse_defaults(text: str) -> dict[str, str]:
    """Parse a spark-defaults.conf: one key and value per line, separated by white space, `=` or `:`."""
    found = {}
    for line in map(str.strip, text.splitlines()):
        if not line or line.startswith(("#", "!")):
            continue
        end = next((at for at, letter in enumerate(line) if letter.isspace() or letter in "=:"), len(line))
        found[line[:end]] = line[end:].lstrip(" \t=:").strip()
    return found


def judge_settings(spark: Spark) -> Iterator[Diagnosis]:
    """Report each setting that is missing or different, with its reason."""
    if spark.found is None:
        seen = f"there is no {spark.file}"
        advice = (
            f"Write it with `peacefs spark conf > {spark.file}`, unless your programs make their sessions with "
            "peacefs.spark_connector.session.configure."
        )
        yield Diagnosis("spark", "settings", Urgency.NOTE, seen, advice)
        return
    off = [(wanted, seen) for wanted in spark.wanted if (seen := _difference(wanted, spark.found))]
    for wanted, seen in off:
        advice = f"Add the line `{wanted.key} {wanted.value}` to {spark.file}: {wanted.reason}."
        yield Diagnosis("spark", wanted.key, Urgency.CHANGE, seen, advice)
    if not off:
        yield Diagnosis("spark", "settings", Urgency.FINE, f"all {len(spark.wanted)} are in {spark.file}")


def _difference(wanted: WantedSetting, found: Mapping[str, str]) -> str:
    """Return how a setting differs; empty if it does not."""
    value = found.get(wanted.key)
    if value is None:
        return "is not set"
    if wanted.key == _CHECKPOINT_LOCATION:
        # Another directory of the same cluster is fine, too.
        root = wanted.value.partition("://")
        same = value.startswith(f"{root[0]}://{root[2].partition('/')[0]}/")
        return "" if same else "leads to another file system"
    if wanted.key.endswith("JavaOptions"):
        return "" if {*wanted.value.split()} <= {*value.split()} else "lacks an option"
    return "" if value == wanted.value else "has another value"
