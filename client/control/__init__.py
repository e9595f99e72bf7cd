"""The client's calls to the coordinator: addresses, requests over frames or REST, retries, and answers.

Begin with `api.py`. File data does not pass here, but through `client.transfer`.
"""
