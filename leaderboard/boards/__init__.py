"""Boards: reading of stored rows, ranking, comparison with the baseline, and output as HTML, CSV, or JSON.

The package is independent of requests: views and the API pass a `BoardState` and get a `Board`.
"""
