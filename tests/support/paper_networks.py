"""Networks of the papers, as network description files."""

from __future__ import annotations

#: SGuard's Figure 5: two switches, two servers each.
FIGURE_5 = """
[[switch]]
name = "SW1"

[[switch]]
name = "SW2"
uplink = "SW1"

[[servers]]
rack = "SW1"
names = ["SVR1.1", "SVR1.2"]

[[servers]]
rack = "SW2"
names = ["SVR2.1", "SVR2.2"]
"""
