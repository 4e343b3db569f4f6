"""The contamination gap, as columns of a dataset's board and in words: docs/contamination.md says what it proves."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_noop as _

from leaderboard.boards.columns.significance import INTERVAL_DECIMALS
from leaderboard.boards.model import Cell, Column
from leaderboard.core.text import numbers
from leaderboard.results.significance.statements import Gap

GAP, GAP_INTERVAL, GAP_SHOWN = "gap", "gap-interval", "gap-shown"
#: All columns of this module.
KEYS = frozenset({GAP, GAP_INTERVAL, GAP_SHOWN})
#: The head of their group.
GROUP = _("Public against hidden")
#: What the chip claims, the two values of the facet, and the answer of a column where the gap is shown.
CLAIM = _("scores better on public queries than on hidden ones")
SHOWN, NOT_SHOWN, SIGNIFICANT = "shown", "not-shown", "significant"


def answer(gap: Gap) -> str:
    """`significant` or `not significant`."""
    return SIGNIFICANT if gap.shown else "not significant"


def gap_texts(gap: Gap | None) -> tuple[str, str] | None:
    """`+0.083` and `+0.021 to +0.145`; None where there is none."""
    return gap and (numbers.signed(gap.value, INTERVAL_DECIMALS), interval_text(gap))


def facet_value(gap: Gap | None) -> str:
    """Of the facet: empty for a row without a gap."""
    return "" if gap is None else SHOWN if gap.shown else NOT_SHOWN


def interval_text(gap: Gap) -> str:
    """Both ends with their sign."""
    return " to ".join(numbers.signed(end, INTERVAL_DECIMALS) for end in (gap.low, gap.high))


def _of_gap(make: Any) -> Any:
    return lambda line: None if line.gap is None else make(line.gap)


def gap_columns(baseline: str) -> Sequence[Column]:
    """The gap, its interval, and whether it is shown, for a board whose differences are to this baseline."""
    return (
        Column(
            GAP, _("Gap"), GROUP, "delta",
            note=f"gain over {baseline} on public queries minus that on hidden ones",
            cell=_of_gap(
                lambda gap: Cell(
                    gap.value,
                    title=f"public {numbers.signed(gap.public, 3)}, hidden {numbers.signed(gap.hidden, 3)}",
                )
            ),
        ),
        Column(
            GAP_INTERVAL, _("95% interval"), GROUP, "count",
            note=_("of the gap; sorted by its lower end"),
            cell=_of_gap(lambda gap: Cell(gap.low, interval_text(gap))),
        ),
        Column(GAP_SHOWN, _("Better on public queries"), GROUP, "text", note=CLAIM, cell=_of_gap(answer)),
    )  # fmt: skip


def notes(found: bool, baseline: str) -> list[str]:
    """What a reader of the columns has to know; nothing where the board has none."""
    if not found:
        return []
    return [
        f"Gap: the gain over {baseline} on the public queries of this collection minus that on the hidden ones. It "
        "is significant where its 95% interval lies above 0. One that is not clears nobody: a system that was trained "
        "on neither half has no gap."
    ]
