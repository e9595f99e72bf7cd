"""Placement and scheduling policies. Pure: no clock, no I/O, no global randomness; knows topology."""
