"""Limits and deadlines that several modules of the connector share; the unit is the last word of each name."""

from typing import Final

query_kill_timeout_s: Final = 3.0
# Stores of one stateful operator, in all its partitions.
checkpoint_partitions_max: Final = 1_000_000
