"""A cluster of real processes on this machine, for `peacefs up`, demos, tests and benchmarks.

Begin with `cluster.py`. Starts services by their command and knows them by their ready line alone; imports
neither the coordinator nor a datanode. `trial_certificates.py` is the CA of `peacefs up --tls` and of
`peacefs certificates`.
"""
