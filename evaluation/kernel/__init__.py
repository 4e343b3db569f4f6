"""The compiled part of scoring: lines to columns, columns to ranks of judged documents.

Only judged documents need ranks, so nothing is sorted but these: a line's document precedes a judged one or not.
Everything here works on the bytes of the file in place; numba is imported with it, and takes half a second.
"""
