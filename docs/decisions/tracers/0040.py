from peacefs.client.local_cluster.member_supervision import MemberSupervision, Say, StartMember

core = MemberSupervision(0.0, ["coordinator", "datanode-1"])
core.ready(1.0, "coordinator")
core.ready(1.0, "datanode-1")
assert core.ended(5.0, "datanode-1", "was killed by SIGKILL") == [
    Say("datanode-1 was killed by SIGKILL; it is started again")
]
assert core.tick(5.1) == [], "not at once"
assert core.tick(5.6) == [StartMember("datanode-1")]
assert core.ready(7.0, "datanode-1") == [Say("datanode-1 is back")]
