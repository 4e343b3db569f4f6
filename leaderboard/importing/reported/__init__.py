"""Published figures, committed as small tables, and their loading as *reported* entries.

`data/` holds facts re-expressed from the cited papers: one row a score or figure, with where it is printed, how it
is printed, and its scale. Nothing here was measured by this site.
"""
