"""The compiled part of scoring: lines of text to rows of numbers, and rows looked up in hash tables.

It is small on purpose. numba takes seconds to compile what C compiles in a blink, and a process that finds no compiled
code must still be quick; so the kernel does only what is done for every line, Python what is done once per query.
It works on memory by address (see `memory.py`): every value is a 64-bit integer, and its callers keep the arrays alive.
"""
