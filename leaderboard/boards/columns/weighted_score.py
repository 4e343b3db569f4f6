"""The score that a reader weighs: Dynascore, over effectiveness and what systems cost.

Ma, Ethayarajh, Thrush, Jain, Wu, Jia, Potts, Williams and Kiela 2021, "Dynaboard: An Evaluation-As-A-Service Platform
for Holistic Next-Generation Benchmarking", NeurIPS. Costs are brought into units of effectiveness by the rate at which
neighbouring systems trade them for it, so that milliseconds and megabytes can be weighed and summed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

#: Neighbours whose effectiveness differs by less than this share of the greatest trade nothing, as in Dynabench's own
#: implementation: their rate would be a division by almost 0.
LEAST_DIFFERENCE = 1e-4


def average_rate(effectiveness: Sequence[float], values: Sequence[float]) -> float | None:
    """The average marginal rate of substitution of a quantity against effectiveness.

    Systems are ordered by effectiveness; between each and the next better one the rate is |Δ quantity| / |Δ
    effectiveness|, and the average of all rates is returned: how much of the quantity a unit of effectiveness is
    worth, 1 for effectiveness itself. None where no two neighbours differ in effectiveness.
    """
    ordered = sorted(zip(effectiveness, values, strict=True))
    if not ordered:
        return None
    least = LEAST_DIFFERENCE * max(abs(value) for value in effectiveness)
    rates = [
        abs((value - previous) / (better - worse))
        for (worse, previous), (better, value) in pairwise(ordered)
        if better - worse > least
    ]
    return sum(rates) / len(rates) if rates else None


def weighted_score(
    effectiveness: float,
    costs: Mapping[str, float],
    rates: Mapping[str, float],
    weights: Mapping[str, float],
) -> float:
    """Σ weight × quantity / its rate, the weights summing to 1; costs count negative.

    Effectiveness has the weight named `effectiveness`, costs those of their names. A cost that is the same for all
    systems has rate 0: it tells none from another, and adds nothing. Higher is better; with all weight on
    effectiveness the score is the effectiveness.
    """
    total = sum(weights.values())
    score = weights.get("effectiveness", 0.0) * effectiveness
    for name, cost in costs.items():
        if rates[name]:
            score -= weights[name] * cost / rates[name]
    return score / total
