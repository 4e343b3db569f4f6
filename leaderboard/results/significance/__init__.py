"""How sure the differences on a board are: found by a worker once per change of the board, kept, and read by pages.

Over open judgements only: of hidden ones an interval, a test or a count by query would tell more than the rounded
means that are published. What follows from these is in `hidden`; `statements` has what may be said of either.
"""
