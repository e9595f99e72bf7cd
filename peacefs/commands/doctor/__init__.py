"""`peacefs doctor`: measure a cluster and a client's machine, judge the facts, and say what to change.

Begin with `judgements.py`, which is pure: it turns `facts.Facts` into findings, with a function per check.
`probes.py` measures the services, `machine.py` this machine; neither judges.
"""
