"""Every stored run of a dataset evaluated again on other judgements, before its board may stand on them.

The only writer of `Rescore`; `switch` puts the board on the other judgements.
"""

# ruff: noqa: F401
from leaderboard.judgements.rescoring.campaigns import (
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
