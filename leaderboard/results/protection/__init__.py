"""What leaves the scorer for hidden judgements, by the policy of their dataset (docs/decisions/0022).

`publishing.protection` changes a policy and ends a competition, `publishing.ladder_places` is the Ladder.
"""

# ruff: noqa: F401
from leaderboard.results.protection.policy import (
    HIDDEN_DECIMALS,
    HIDDEN_DEVIATION_DECIMALS,
    MOST_MEASURES,
    daily_budget_left,
    established_at,
    established_teams,
    is_new_team,
    policy_of,
    policy_of_columns,
    unknown_teams,
)
from leaderboard.results.protection.splits import evaluate_parts, part_means
