"""Contamination gap as columns of a dataset's board and as text; docs/contamination.md explains what it proves."""

from collections.abc import Sequence
from typing import Any

from django.utils.translation import gettext_noop as _

from leaderboard.boards.columns.significance import INTERVAL_DECIMALS
from leaderboard.boards.model import Cell, Column
from leaderboard.core.text import numbers
from leaderboard.results.significance.statements import Gap

GAP, GAP_INTERVAL, GAP_SHOWN = "gap", "gap-interval", "gap-shown"
KEYS = frozenset({GAP, GAP_INTERVAL, GAP_SHOWN})
#: Head of the group of columns.
GROUP = _("Gap: open vs hidden half")
#: Claim of the badge, the two values of the facet, and the value of the column for a significant gap.
CLAIM = _("scores better on public queries than on hidden ones")
SHOWN, NOT_SHOWN, SIGNIFICANT = "shown", "not-shown", "significant"


def gap_texts(gap: Gap | None) -> tuple[str, str] | None:
    """Return texts such as `+0.083` and `+0.021 to +0.145`, or None without a gap."""
    return gap and (numbers.signed(gap.value, INTERVAL_DECIMALS), interval_text(gap))


def interval_text(gap: Gap) -> str:
    return " to ".join(numbers.signed(end, INTERVAL_DECIMALS) for end in (gap.low, gap.high))


def _gap_cell(build_cell: Any) -> Any:
    return lambda line: None if line.gap is None else build_cell(line.gap)


def gap_columns(baseline: str) -> Sequence[Column]:
    """Return the columns of the gap, its interval, and its significance."""
    return (
        Column(
            GAP, _("Gap"), GROUP, "delta",
            note=f"gain over {baseline} on public queries minus that on hidden ones",
            cell=_gap_cell(
                lambda gap: Cell(
                    gap.value,
                    title=f"public {numbers.signed(gap.public, 3)}, hidden {numbers.signed(gap.hidden, 3)}",
                )
            ),
        ),
        Column(
            GAP_INTERVAL, _("95% interval"), GROUP, "count",
            note=_("95% interval of the gap; sorted by its lower end"),
            cell=_gap_cell(lambda gap: Cell(gap.low, interval_text(gap))),
        ),
        Column(
            GAP_SHOWN, _("Better on public queries"), GROUP, "text", note=CLAIM,
            cell=_gap_cell(lambda gap: SIGNIFICANT if gap.shown else "not significant"),
        ),
    )  # fmt: skip


def notes(has_gaps: bool, baseline: str) -> list[str]:
    """Return the notes on the columns, if the board has them."""
    if not has_gaps:
        return []
    return [
        f"Gap: the gain over {baseline} on the public queries of this collection minus that on the hidden ones. It "
        "is significant if its 95% interval is above 0. A non-significant gap does not prove that a system is "
        "uncontaminated."
    ]
