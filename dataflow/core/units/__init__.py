"""One unit on a node: its operators, what they process, and what a restart needs to know.

Begin with `unit.py`. `core/node.py` and its parts make units and let them work; units know nothing of nodes.
"""
