"""Scores computed a second time, by pytrec_eval and short references, from the text of a stored run.

Nothing here imports another package of ours: a fault in the compiled reader, its order or a formula is not shared.
"""
