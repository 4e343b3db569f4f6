"""What leaves the scorer for hidden judgements, by the policy of their dataset (docs/decisions/0022).

`publishing.protection` changes a policy and ends a competition, `publishing.ladder_places` is the Ladder.
"""

# ruff: noqa: F401
from leaderboard.results.protection.policy import (
    HIDDEN_DECIMALS,
    HIDDEN_DEVIATION_DECIMALS,
    MOST_MEASURES,
    grown_up,
    grown_up_at,
    is_young,
    policy_of,
    policy_of_columns,
    readings_left,
    unknown_teams,
)
from leaderboard.results.protection.splits import evaluate_parts, part_means
