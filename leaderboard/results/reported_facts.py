"""Costs and facts, besides scores, that publications report about a system or that teams state in their runs."""

from collections.abc import Mapping
from typing import Any

from django.utils.translation import gettext_noop as _

from evaluation.engines.facts import FACTS
from evaluation.engines.prompts import SIDES, format_prompt
from leaderboard.core.text.numbers import format_quantity

#: Reported costs of a system, with the better direction.
COSTS = {"latency": "lower", "index size": "lower", "cost": "lower", "price": "", "dimension": ""}
#: Units of index sizes, in bytes.
SIZE_UNITS = {
    **{unit: 1000.0**power for power, unit in enumerate(("B", "kB", "MB", "GB", "TB"))},
    **{unit: 1024.0**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1)},
}
COST_UNIT = "USD per 1,000 queries"
#: Figures that publications or teams report about themselves.
SELF_REPORTED = frozenset({"cost", "price"})
#: Unit of a figure → unit of its column on boards, which has one unit so that it can be sorted, and the factor.
BOARD_UNITS = {
    "s": ("ms", 1000.0),
    "USD per million queries": (COST_UNIT, 0.001),
    **{unit: ("GB", size / SIZE_UNITS["GB"]) for unit, size in SIZE_UNITS.items()},
}
#: Upper bound for plausible numbers of tokens or dollars in the header of a run.
_MAX_AMOUNT = 1e15
_PROMPTS = frozenset(f"{side}_prompt" for side in SIDES)


def fact_texts(facts: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return labels and formatted values of a system's reported facts, in the order of FACTS."""
    texts = []
    for name, fact in FACTS.items():
        value = facts.get(name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        text = f"{value:,.{fact.decimals}f}" if is_number else format_prompt(value) if name in _PROMPTS else str(value)
        texts.append((fact.label, f"{text} {fact.unit}".strip()))
    return texts


def is_url(locator: str) -> bool:
    """Return whether a figure was read from a file at this URL rather than from a table in a paper."""
    return locator.startswith(("https://", "http://"))


def make_figure(name: str, as_printed: str, unit: str, locator: str, hardware: str = "") -> dict[str, Any]:
    """Return a figure that is not doubtful, in the format of `Entry.figures`."""
    return {
        "name": name, "value": float(as_printed), "unit": unit, "scale": "", "hardware": hardware,
        "as_printed": as_printed, "doubt": "", "locator": locator, "doubtful": False,
    }  # fmt: skip


def board_unit(figure: Mapping[str, Any]) -> tuple[str, float]:
    """Return the unit of a figure's column on boards, and the factor that converts the figure to this unit."""
    unit = str(figure.get("unit", ""))
    return BOARD_UNITS.get(unit, (unit, 1.0))


def board_value(figure: Mapping[str, Any]) -> tuple[float, str]:
    """Return a figure in the unit of its column, and its text: as printed, or rounded if it was converted."""
    factor = board_unit(figure)[1]
    value = round(float(figure["value"]) * factor, 12)
    if factor == 1.0:
        return value, str(figure.get("as_printed") or f"{value:g}")
    text = format_quantity(value)
    return value, text.rstrip("0").rstrip(".") if "." in text else text


def stated_costs(metadata: Mapping[str, Any], query_count: int | None) -> list[dict[str, Any]]:
    """Return the cost and the token price stated in a run's header, as figures.

    If the header states only the cost of the whole job (`cost_usd`), the cost is calculated from it and the number of
    queries of the dataset. It is doubtful, because the cost includes the documents.
    """
    resources = metadata.get("resources")
    if not isinstance(resources, Mapping) or resources.get("self_reported") != "true":
        return []
    names = ("cost_usd_per_1000_queries", "cost_usd", "price_usd_per_million_tokens")
    query_cost, job_cost, price = (read_amount(resources.get(name)) for name in names)
    figures, locator = [], _("header of the run")
    if query_cost is not None:
        figures.append(make_figure("cost", f"{query_cost:.6g}", COST_UNIT, locator))
    elif job_cost is not None and query_count:
        doubt = _("cost of the whole job, documents included, over its queries")
        figure = make_figure("cost", f"{1000 * job_cost / query_count:.6g}", COST_UNIT, locator)
        figures.append(figure | {"doubtful": True, "doubt": doubt})
    if price is not None:
        figures.append(make_figure("price", f"{price:.6g}", "USD per million tokens", locator))
    return figures


def read_amount(text: object) -> float | None:
    """Return a nonnegative number from a run header, or None for invalid text."""
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if 0 <= number < _MAX_AMOUNT else None
