"""A cluster of real processes on this machine, for `peacefs up`, demos, tests and benchmarks.

Begin with `cluster.py`. Services are started by their command, and report only through their ready line.
Imports neither the coordinator nor a datanode. `trial_certificates.py` is the CA of `peacefs up --tls` and of
`peacefs certificates`.
"""
