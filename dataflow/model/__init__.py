"""Values that every part of a dataflow uses: batches, types of streams, classes of operators.

Begin with `batches.py`. Pure; imports nothing else of `dataflow`.
"""
