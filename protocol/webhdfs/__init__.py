"""WebHDFS as both sides of it see it: requests parsed, redirects made and read, answers written.

Begin with `requests.py`. Knows no file system behind it.
"""
