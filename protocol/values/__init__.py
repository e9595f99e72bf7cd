"""Shapes that more than one side knows: fsck findings, schedules, query reports, supervised queries, names.

Plain data without behaviour; imports `ids`, `errors` and `limits` at most.
"""
