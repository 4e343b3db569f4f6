"""Catalog of benchmarks: their datasets, sources, and completeness on this site.

`data/datasets.csv` has a row for each dataset with its source (`import_dataset --from`) and a published BM25 score
with its reference. `importer.import_benchmark` imports all available datasets.
"""
