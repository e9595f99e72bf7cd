"""The coordinator's HTTP door: WebHDFS for names, REST under `/v1`, admission and request metrics.

Begin with `webhdfs.py`. Parses requests, calls `operations`, writes answers; decides nothing about files.
"""
