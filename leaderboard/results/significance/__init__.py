"""How sure the differences on a board are: found by a worker once per change of the board, kept, and read by pages.

Over open judgements only: of hidden ones an interval, a test or a count by query would tell more than the rounded
means that are published.
"""

# ruff: noqa: F401
from leaderboard.results.significance.computing import (
    BoardAnalysis,
    analyse_board,
    compute_certainty,
    request_if_changed,
    request_missing_certainty,
    store_certainty,
)
from leaderboard.results.significance.reading import read_certainty, read_certainty_at
from leaderboard.results.significance.types import (
    BoardCertainty,
    EntryCertainty,
    MeasureCertainty,
    TestSettings,
    Verdict,
    verdict_of,
)
