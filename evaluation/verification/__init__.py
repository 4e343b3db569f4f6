"""Independent recomputation of scores from the text of a stored run, with pytrec_eval and short reference formulas.

The package does not import other packages of Runboard, so that it is independent of errors in the compiled reader, the
order of documents, and formulas.
"""
