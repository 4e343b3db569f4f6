"""What leaves the scorer for hidden judgements, by the policy of their dataset (docs/decisions/0022).

`publishing.protection` changes a policy, `publishing.ladder_places` is the Ladder, `publishing.revealing` ends a
competition.
"""

from leaderboard.results.protection.policy import (
    HIDDEN_DECIMALS,
    HIDDEN_DEVIATION_DECIMALS,
    MOST_MEASURES,
    Policy,
    policy_of,
    policy_of_columns,
)
from leaderboard.results.protection.splits import draw_parts, evaluate_parts, private_means, public_means
from leaderboard.results.protection.young import (
    grown_up,
    grown_up_at,
    is_young,
    readings_left,
    unknown_teams,
)

__all__ = [
    "HIDDEN_DECIMALS",
    "HIDDEN_DEVIATION_DECIMALS",
    "MOST_MEASURES",
    "Policy",
    "draw_parts",
    "evaluate_parts",
    "grown_up",
    "grown_up_at",
    "is_young",
    "policy_of",
    "policy_of_columns",
    "private_means",
    "public_means",
    "readings_left",
    "unknown_teams",
]
