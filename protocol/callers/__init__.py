"""Credentials that callers present: who they are, how that is proven, and what verifies it.

Begin with `caller` (the outcome), then `verifier` (what services ask). `bearer` knows JSON Web Tokens, and
`delegation` Hadoop's delegation tokens. Nothing here keeps state on a disk or talks to anybody.
"""
