"""Compiled scoring kernel: reads the lines of a run and ranks its judged documents.

`run_reader.c` and its headers process the bytes of a run in place. `layout.py` declares their structures and
allocates their arrays, `building.py` compiles them on first use, and `library.py` calls them.

Reading and scoring 6,980,000 lines takes 0.83 CPU s in a warm worker; pytrec_eval takes 8.12
(docs/measurements/speed.md).
"""
