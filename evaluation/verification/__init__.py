"""Second computation of scores from the text of a stored run, by pytrec_eval and short references.

It imports no other package of Runboard, so that it shares no error in the compiled reader, its order, or a formula.
"""
