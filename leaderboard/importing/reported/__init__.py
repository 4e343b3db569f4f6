"""Published results as versioned tables, and their import as *reported* entries.

`data/` contains facts from the cited papers: one row per score or figure, with its location, printed form, and scale.
None of them was measured by Runboard.
"""
