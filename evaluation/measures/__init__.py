"""Effectiveness measures, with formulas over ranks of judged documents and names of ir_measures."""
