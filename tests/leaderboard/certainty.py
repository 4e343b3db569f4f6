"""Tests of a board found at once, as the worker's job does."""

from leaderboard.models import Certainty, Dataset
from leaderboard.results.significance.computing import analyse_board, store_certainty


def compute_certainty(dataset: Dataset) -> Certainty | None:
    """Find and keep what there is to say of the dataset's board; None where there is nothing, or nothing new."""
    finding = analyse_board(dataset)
    return store_certainty(finding) if finding is not None else None
