"""The client's calls to the coordinator: addresses, requests over frames or REST, retries, and their answers.

Begin with `api.py`. Moves no file data: that is `client.transfer`.
"""
