"""The coordinator's HTTP interface: WebHDFS for names, REST under `/v1`, admission and request metrics.

Begin with `webhdfs.py`. Parses requests, calls `operations` and writes answers. Decides nothing about files.
"""
