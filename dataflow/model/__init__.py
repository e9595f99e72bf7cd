"""Values that every part of a dataflow knows: batches, types of streams, classes of operators.

Begin with `batches.py`. Pure; imports nothing else of `dataflow`.
"""
