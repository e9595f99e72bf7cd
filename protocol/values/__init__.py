"""Data types shared by coordinator and clients: answers of REST, fsck findings, schedules, query reports, names.

Plain data without behaviour. Modules here import at most `ids`, `errors` and `limits`.
"""
