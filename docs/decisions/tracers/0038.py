from peacefs.coordinator.operations.under_construction import BegunName, BegunNames
from peacefs.datanode.gateway.flush_times import FlushStep, FlushTimes
from peacefs.datanode.limits import upload_pause_s

names = BegunNames()
names.begin(BegunName(("logs", "app.inprogress"), "a request", "dn-1", begun_s=0.0))
assert [one.node for one in names.at(0.1, ("logs", "app.inprogress"))] == ["dn-1"]
assert [one.upload for one in names.listed(0.1, ("logs",))] == ["a request"]
names.end("a request")  # it has appeared, or was completed whole
assert len(names) == 0

quick = FlushTimes(0.0, may_appear=True, has_lease=False)
quick.received(0.001)
assert quick.due(0.002, is_long=False) is None, "a small file is published at its end, in one commit"
assert quick.due(upload_pause_s, is_long=False) is FlushStep.SHOW
quick.shown(upload_pause_s)
quick.taken()
quick.received(5.0)
assert quick.due(5.0 + upload_pause_s, is_long=False) is FlushStep.FLUSH
assert FlushTimes(0.0, may_appear=False, has_lease=False).due(1e6, is_long=False) is None, "it replaces another"
