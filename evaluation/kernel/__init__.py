"""The compiled part of scoring: lines to columns, columns to ranks of judged documents.

`run_reader.c` and the headers beside it work on the bytes of the file in place; `layout.py` has their structures and
allocates what they work on, `building.py` compiles them on first use, `library.py` calls them.

Reading and scoring 6,980,000 lines takes 0.83 CPU s in a warm worker, pytrec_eval 8.12 (docs/measurements/speed.md).
"""
