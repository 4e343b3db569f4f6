"""The reported values that say what a system costs."""

from __future__ import annotations

#: Figures that say what a system costs, and which way is good.
COSTS = {"latency": "lower", "index size": "lower", "cost": "lower", "dimension": ""}
