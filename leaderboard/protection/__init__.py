"""What leaves the scorer for hidden judgements, by the policy of their dataset (docs/decisions/0022)."""

from leaderboard.protection.policy import MOST_MEASURES, Policy, policy_of

__all__ = ["MOST_MEASURES", "Policy", "policy_of"]
