"""Compiled loops over pages (Numba). Decision 34 says why and how they are compiled.

Kernels take and return arrays and integers. They know words of memory, but no schema and no structure, so each is
compiled once for all schemas (in `columns`, once per column type). All release the GIL. Importing a module of this
package imports Numba, and nothing else of ours.
"""
