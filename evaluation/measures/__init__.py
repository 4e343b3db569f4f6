"""Measures as data: each family is a formula over judged documents' ranks, named as ir_measures names it."""
