"""Reading, checks, scoring, pooling, and comparison of runs."""
