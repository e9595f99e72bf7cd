from peacefs.coordinator.supervision.locality import AgentCandidate, Holdings, choose
from peacefs.spark_connector.supervision.reconciliation import reconcile

near = Holdings(by_host={"h2": 1000}, by_rack={"/r2": 1000})
agents = [AgentCandidate("a", "h1", "/r1", 0), AgentCandidate("b", "h2", "/r2", 3)]
assert choose(agents, near, failed_on=None) == "b"
assert choose(agents, near, failed_on="b") == "a"
assert reconcile(running={("orders", "1-1")}, ended=(), orders=[]).stop == [("orders", "1-1")]
