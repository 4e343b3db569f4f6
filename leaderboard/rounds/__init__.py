"""Rounds: phases, what is asked of a run, quotas, and scores by topic."""
