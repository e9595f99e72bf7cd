"""Shapes that more than one side knows: what REST answers, fsck findings, schedules, query reports, and names.

Plain data without behaviour, declared here once; imports `ids`, `errors` and `limits` at most.
"""
