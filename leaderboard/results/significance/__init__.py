"""Statistical significance of the differences on boards, computed by a worker after each change and read by pages.

Intervals, tests, and per-query counts of a dataset are computed for open judgments only, because with hidden ones they
would reveal more than the published, rounded means. `hidden` compares published values instead, and `statements` covers
both cases. `leaderboard.boards.benchmark.significance` tests differences over the datasets of a benchmark.
"""
