"""The score that a reader weighs, on boards of datasets and of benchmarks: Dynascore.

Ma, Ethayarajh, Thrush, Jain, Wu, Jia, Potts, Williams and Kiela 2021, "Dynaboard: An Evaluation-As-A-Service Platform
for Holistic Next-Generation Benchmarking", NeurIPS. Costs are brought into units of effectiveness by the rate at which
neighbouring systems trade them for it, so that milliseconds and megabytes can be weighed and summed.
"""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import EFFICIENCY, Column, Row
from leaderboard.results.board_rows.entry_rows import UNRANKED
from leaderboard.results.board_rows.measurements import Machine

WEIGHTED = "weighted-score"
#: What is weighed, and the column that says it.
COST_COLUMNS = {"latency": "mean-latency", "memory": "peak-memory", "cost": "cost-per-million"}
#: So many systems of the fixed set are named below the board; the set itself has no limit.
NAMED = 12
#: Neighbours whose effectiveness differs by less than this share of the greatest trade nothing, as in Dynabench's own
#: implementation: their rate would be a division by almost 0.
LEAST_DIFFERENCE = 1e-4


def weighted_column(group: str = EFFICIENCY) -> Column:
    """The column, in the group where the board shows it."""
    return Column(
        WEIGHTED,
        _("Weighted score"),
        group,
        "number",
        "higher",
        note=_(
            "Dynascore: effectiveness less costs, each over its rate of exchange, by the weights of this view"
        ),
    )


def fill_weighted(
    rows: Sequence[Row],
    effectiveness: Sequence[float | None],
    weights: Mapping[str, float],
    machine: Machine | None,
    *,
    lower_is_better: bool = False,
) -> list[str]:
    """Set the weighted score of all rows of a board, in the order of `effectiveness`, and return the notes on it.

    Rates of exchange are over all rows that were measured on the board's machine and have an effectiveness and every
    weighed cost. Without weights, nothing is set.
    """
    if not weights:
        return []
    wanted = {name: COST_COLUMNS[name] for name in weights if name in COST_COLUMNS}
    filled = {key for row in rows for key in wanted.values() if row[key].text or row[key].value is not None}
    unmeasured = [name for name, key in wanted.items() if key not in filled]
    if unmeasured:
        return [f"No weighted score: nothing here has a measured {' or '.join(unmeasured)}."]
    sign = -1.0 if lower_is_better else 1.0
    complete: list[tuple[Row, float]] = [
        (row, sign * value)
        for row, value in zip(rows, effectiveness, strict=True)
        if value is not None
        and row.measured is not None
        and row.ranked_in not in UNRANKED
        and all(row.value(key) is not None for key in wanted.values())
    ]
    values = [value for _, value in complete]
    rates = {
        name: average_rate(values, [float(row.value(key) or 0.0) for row, _ in complete])
        for name, key in wanted.items()
    }
    known = {name: rate for name, rate in rates.items() if rate is not None}
    if len(known) < len(rates):
        return [
            "No weighted score: a rate of exchange needs two measured systems of different effectiveness."
        ]
    for row, value in complete:
        costs = {name: float(row.value(key) or 0.0) for name, key in wanted.items()}
        score = weighted_score(value, costs, known, weights)
        if math.isfinite(score):
            row.values[WEIGHTED] = round(score, 4)
    total = sum(weights.values())
    shares = ", ".join(f"{name} {weight / total:.0%}" for name, weight in weights.items())
    names = list(dict.fromkeys(row.entry.system for row, _ in complete))
    named = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    measured = f" on {machine.name}" if machine else ""
    return [
        f"Weighted score: Dynascore with {shares}; costs count negatively, divided by their average rate of exchange "
        f"among the {len(complete)} complete rows measured{measured} ({named}). Filters do not change it."
    ]


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
