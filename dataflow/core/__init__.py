"""Pure cores of a dataflow: buffers, HA units, nodes, the controller. Events and `now` in, effects out.

Begin with `units/unit.py`, then `node.py` and `controller.py`. Cores import no clock, event loop, socket or
logger.
"""
