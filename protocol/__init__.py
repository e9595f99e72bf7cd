"""What goes over the wire, and the vocabulary in which participants say what they want done.

Imports nothing of ours. Knows no role: neither coordinator nor datanode nor client.
"""
