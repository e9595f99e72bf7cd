"""Limits and deadlines that several modules of the connector share. Each name ends with its unit."""

from typing import Final

query_kill_timeout_s: Final = 3.0
# Per stateful operator: the number of its stores in all partitions.
checkpoint_partitions_max: Final = 1_000_000
