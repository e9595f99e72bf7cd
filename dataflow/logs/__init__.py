"""Durable logs of streams: segments of records, an index, replay, trimming (CEC, appendix).

Begin with `stream_log.py`, which writes, and `log_reader.py`, which reads; `records.py` is the format, pure.
`segments.py` is the port to where segments are kept.
"""
