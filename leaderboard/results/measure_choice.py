"""Which measures a dataset's board shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evaluation.core.problems import Problem
from evaluation.measures import DEFAULT_MEASURES, UnknownMeasureError, parse_measure
from leaderboard.datasets.problems import problem
from leaderboard.results.protection import MOST_MEASURES

#: Shown beside the primary measure where judgements are hidden.
_HIDDEN_EXTRAS = ("R@100", "R@1000")


def shown_measures(primary: str, asked: Sequence[str], *, hidden: bool) -> list[str]:
    """The measures, the primary one first, in ir_measures' spelling."""
    first = parse_measure(primary).name
    if asked:
        others = [parse_measure(name).name for name in asked]
    else:
        others = list(_HIDDEN_EXTRAS if hidden else DEFAULT_MEASURES)
    return list(dict.fromkeys([first, *others]))


def check_measures(primary: str, asked: Sequence[str], *, hidden: bool) -> Iterator[Problem]:
    """What is wrong with the measures asked for."""
    unknown = False
    for name in (primary, *asked):
        try:
            measure = parse_measure(name)
        except UnknownMeasureError as error:
            unknown = True
            yield problem(
                "unknown_measure", str(error), "The page “Measures” lists those that can be chosen."
            )
            continue
        if hidden and measure.name.startswith(("Hole", "Judged")):
            yield problem(
                "revealing_measure",
                f"{measure.name} tells which documents are judged",
                "Choose another measure, or open the judgements.",
            )
    if not unknown and hidden and len(shown_measures(primary, asked, hidden=True)) > MOST_MEASURES:
        yield problem(
            "too_many_measures",
            f"with hidden judgements at most {MOST_MEASURES} measures are shown, the primary one included",
            "Every measure is another look at the judgements; choose fewer, or open them.",
        )
