"""Boards: rows read as plain tuples, ranked, compared with their baseline, and written as HTML, CSV or JSON.

Nothing here knows a request: views and the API hand in a `BoardState` and get a `Board` back.
"""
