"""The closed forms of the papers that no estimate of the product needs: the rest of HA's Table 3, and Flux's.

Units and symbols are those of `dataflow/advice/closed_forms.py`, which has the others.
"""

from __future__ import annotations

from peacefs.dataflow.advice.closed_forms import UnitLoad, trimming_share, upstream_backup_replayed_rows

# -- HA's Table 3 (section 5) ----------------------------------------------------------------------------------


def passive_standby_repeated_rows(load: UnitLoad) -> float:
    """Delta = M lambda_out (5.1): the repeated rows of the output."""
    return load.interval_s * load.rate_out


def upstream_backup_repeated_rows(load: UnitLoad) -> float:
    """Delta = Q times the selectivity, without the rows that only rebuild the state (5.2)."""
    return (upstream_backup_replayed_rows(load) - load.state_rows) * load.selectivity


def passive_standby_bandwidth(load: UnitLoad) -> float:
    """f1(1/M, C): copies of state and output rows, with a position per queue, and acknowledgements."""
    rows = load.state_rows_per_row + load.selectivity
    positions = load.number_bytes * (load.inputs + load.outputs) / (load.interval_s * load.rate * load.row_bytes)
    return rows + positions + trimming_share(load, 1)


# -- the time until both of a pair are gone (Flux 3.2, 4.2 and 5) ----------------------------------------------
#
# The paper leaves out that either node of a pair may be the first to fail, and so do these: what is played is half
# as long.


def pair_mttf_s(node_mttf_s: float, repair_s: float) -> float:
    """MTTF^2 / MTTR: one pair of nodes (Flux 3.2)."""
    return node_mttf_s**2 / repair_s


def cluster_pairs_mttf_s(nodes: int, node_mttf_s: float, repair_s: float, *, all_at_once: bool = True) -> float:
    """4 MTTF^2 / (N^2 MTTR): two copies of a whole dataflow, each on half of the nodes (Flux 4.2).

    A copy is lost with any of its nodes. This assumes that its nodes are repaired at the same time, while the
    query stands still; one after the other takes N / 2 times as long.
    """
    copy_repair_s = repair_s if all_at_once else repair_s * nodes / 2
    return pair_mttf_s(2 * node_mttf_s / nodes, copy_repair_s)


def partition_pairs_mttf_s(nodes: int, node_mttf_s: float, repair_s: float, *, chained: bool = False) -> float:
    """2 MTTF^2 / (N MTTR): a pair for each part, on N / 2 pairs of nodes (Flux 4.2 and 5).

    In a chain each node belongs to two pairs, so there are N pairs, and the time is half as long.
    """
    return pair_mttf_s(node_mttf_s, repair_s) / (nodes if chained else nodes / 2)
