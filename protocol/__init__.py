"""The protocol: messages on the wire, and the vocabulary in which participants request effects.

Begin with `messages/` and `runtime/effects.py`; `limits.py` has every bound, `errors.py` every error. Imports
nothing of ours. Knows no role: neither coordinator nor datanode nor client.
"""
