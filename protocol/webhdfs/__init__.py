"""WebHDFS for both of its sides: parses requests, makes and parses redirects, writes answers.

Start with `requests.py`. Does not depend on the file system.
"""
