"""Limits and deadlines that several modules of the connector share. Names contain their unit."""

from typing import Final

query_kill_timeout_s: Final = 3.0
# Maximum number of state stores of one stateful operator, over all its partitions.
checkpoint_partitions_max: Final = 1_000_000
