"""Compiled loops over pages (Numba). Decision 34 says why they are compiled and how.

Arrays and integers in, arrays and integers out: a kernel knows words of memory, no schema and no structure, so
that it is compiled once for all schemas; those of `columns` once for each type of column. All release the
interpreter's lock. Importing a module of this package imports Numba. Imports nothing else of ours.
"""
