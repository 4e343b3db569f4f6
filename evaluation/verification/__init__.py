"""Second computation of scores from the text of a stored run, by pytrec_eval and short references.

The package does not import other packages of Runboard, so that it is independent of errors in the compiled reader, the
order of documents, and formulas.
"""
