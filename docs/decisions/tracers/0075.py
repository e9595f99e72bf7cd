from peacefs.protocol.limits import MIB
from peacefs.runtime.write_ways import WriteWays

ways, now_s, around = WriteWays(), 0.0, []


def write(ms_per_mib_through, ms_per_mib_around):
    global now_s
    trial = ways.begin(1, "/data", now_s)
    ways.works(trial, now_s)
    now_s += 64 * (ms_per_mib_around if trial.is_around else ms_per_mib_through) / 1000
    ways.rests(trial, now_s)
    ways.written(trial, 64 * MIB)
    return trial.is_around


assert sum(write(2.0, 1.0) for _ in range(100)) > 90  # memory is taken from the host: around the cache
assert [write(2.0, 40.0) for _ in range(100)].count(True) < 10  # that became slow: through it
assert ways.states()[0].is_around is False
