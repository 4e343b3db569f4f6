"""Rounds: phases, requirements on runs, quotas, and per-topic scores."""
