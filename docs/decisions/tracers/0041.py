from peacefs.coordinator.authentication.proxy_users import ProxyUsers, parse_proxy_users
from peacefs.coordinator.namespace.permissions import Callers
from peacefs.protocol.errors import ImpersonationRefused

text = """
hadoop.proxyuser.oozie.hosts = "10.1.0.0/16"
hadoop.proxyuser.oozie.groups = "*"
"""
rules = ProxyUsers(Callers("hdfs"), parse_proxy_users(text, lambda host: []))
rules.authorize("oozie", "alice", "10.1.2.3")
for real, effective, address in (
    ("oozie", "alice", "10.2.0.1"),
    ("hue", "alice", "10.1.2.3"),
    ("oozie", "hdfs", "10.1.2.3"),
):
    try:
        rules.authorize(real, effective, address)
    except ImpersonationRefused:
        continue
    raise AssertionError("nobody said that it may")
