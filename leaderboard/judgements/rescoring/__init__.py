"""Every stored run of a dataset evaluated again on other judgements, before its board may stand on them.

The only writer of `Rescore`; `switch` puts the board on the other judgements.
"""

# ruff: noqa: F401
from leaderboard.judgements.rescoring.campaigns import (
    CannotRescore,
    RescoreUnderWay,
    discard_rescore,
    fail_rescore,
    include_new_run,
    is_needed,
    resume_rescore,
    start_rescore,
    under_way,
)
