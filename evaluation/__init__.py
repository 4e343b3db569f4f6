"""Information retrieval in pure Python: reading runs and qrels, retrieving, scoring.

Nothing here knows of the web site: `python -m evaluation` gives the site's numbers offline.
"""
