"""Decision 91: the driver's run is the coordinator's, and a program is stored under the hash of its contents."""

import hashlib

from peacefs.dataflow.hosts.peace_checkpoints import PeaceCheckpoints
from peacefs.dataflow.programs.start_app import name_of_program
from peacefs.spark_connector.supervision.command_list import run_stop_s_max
from peacefs.spark_connector.supervision.run_guard import run_guard_timeout_s

assert name_of_program(b"pass") == f"{hashlib.sha256(b'pass').hexdigest()}.py"
given = PeaceCheckpoints("localhost:9870", "/q", location="/q/.run-1-7")
assert (given.directory, given.location) == ("/q", "/q/.run-1-7")
assert run_stop_s_max < run_guard_timeout_s
