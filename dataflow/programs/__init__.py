"""Programs that run dataflows: by hand, or handed to the cluster and started by its agents.

`run` is for the program itself. `submission` hands a program to the coordinator, and `start_app` is what an agent
starts.
"""

from .program import run

__all__ = ["run"]
