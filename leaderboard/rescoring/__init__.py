"""Every stored run of a dataset evaluated again on other judgements, before its board may stand on them.

The only writer of `Rescore`, but for the decision to switch, which is `leaderboard.publishing.switching`'s.
"""

from leaderboard.rescoring.campaigns import (
    CannotRescore,
    RescoreUnderWay,
    catch_up,
    discard,
    give_up,
    go_on,
    is_needed,
    start,
    under_way,
)
from leaderboard.rescoring.runs import waiting_runs

__all__ = [
    "CannotRescore",
    "RescoreUnderWay",
    "catch_up",
    "discard",
    "give_up",
    "go_on",
    "is_needed",
    "start",
    "under_way",
    "waiting_runs",
]
