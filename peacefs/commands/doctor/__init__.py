"""`peacefs doctor`: measures a cluster and a client's machine, judges the facts, and says what to change.

Begin with `judgements.py`, which is pure: `facts.Facts` in, findings out, a function for each check. `probes.py`
measures the services, `machine.py` this machine; they judge nothing.
"""
