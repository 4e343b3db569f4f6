"""Rescoring: evaluation of all stored runs on other judgments before a board is switched to them.

This package is the only writer of `Rescore`. `switch` switches the board.
"""
