"""Benchmarks as data: which datasets each has, where they can be fetched, and what of them is on this site.

`data/datasets.csv` has a row for each dataset, with its source (`import_dataset --from`), and the BM25 that was
published on it, with where. `importer.import_benchmark` imports what is available.
"""
