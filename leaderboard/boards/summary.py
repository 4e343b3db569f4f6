"""What a board says, in one or two sentences: who is best, by how much and how surely, who ties, what good costs.

Page, API, exports, feeds and share images say it with these words. What is said of certainty comes from
`results.significance.statements`, which knows how the judgements are protected. It is of the whole board: no filter
changes it, and where some are on it says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from leaderboard.boards.model import Board, Row, Summary
from leaderboard.core.text.numbers import MINUS, format_quantity, format_value, signed
from leaderboard.results.kinds import REPORTED, SCORED
from leaderboard.results.significance.statements import UNKNOWN, BoardStatements, Statement

#: A system that costs least is looked for among those that have this share of the best score.
NEAR_BEST = 0.95
#: A longer name of a system is said by its beginning, so that a telephone shows all in three lines.
LONGEST_NAME = 34
#: So many systems that tie are named, where their names are short; more are counted.
MOST_NAMED = 2


def summarise(
    board: Board,
    measure: str,
    said: BoardStatements,
    *,
    lower_is_better: bool,
    key: str = "",
    relative: str = "relative",
    tested: bool = True,
    filtered: bool = False,
) -> Summary | None:
    """The summary of a board that has all of its rows, ranked; None where no row has a rank.

    `key` and `relative` name the columns of the score and of the ratio to the baseline, `tested` is whether anything is
    tested on a board of this kind, `filtered` whether the view is to hide some of the rows, which is then said.
    """
    key = key or board.measure
    rows = [row for row in board.rows if row.ranked_in == SCORED and row.value(key) is not None]
    reported = not rows
    if reported:
        rows = [row for row in board.rows if row.ranked_in == REPORTED and row.value(key) is not None]
    if not rows:
        return None
    choose: Callable[..., Row] = min if lower_is_better else max
    best = choose(rows, key=lambda row: row.value(key))
    names = Counter(row.entry.system for row in board.rows)
    score, ratio = _number(best, key) or 0.0, _number(best, relative)
    statement = said.of(best.entries[0], measure) if best.entries else UNKNOWN
    ties = said.tied_with_best(measure)
    tied = [row for row in rows if row is not best and ties.intersection(row.entries)]
    cheapest, latency, cost = _cheapest(rows, best, key, tied, lower_is_better=lower_is_better)
    least = said.least_difference(measure)
    lead = _lead(board, best, ratio, statement, least, others=len(rows) - 1)
    certain = (
        _ties(tied, names)
        if ties and len(rows) > 1
        else _untested(board, rows, reported=reported, tested=tested)
    )
    label = "Best reported" if reported else "Best"
    whole = f" of all {len(board.rows)} systems" if filtered and len(board.rows) > 1 else ""
    challenged = " (challenged)" if best.entry.challenged else ""
    after = f"{challenged}, {measure} {format_value(score, 3)}{lead}. {certain} {cost}"
    return Summary(
        f"{label}{whole}: ",
        _name(best, names),
        " ".join(after.split()),
        best.entry.slug,
        measure,
        score,
        ratio,
        statement,
        [row.entry.slug for row in tied],
        cheapest.entry.slug if cheapest else None,
        latency,
    )


def _number(row: Row, key: str) -> float | None:
    value = row.value(key)
    return value if isinstance(value, (float, int)) else None


def _name(row: Row, names: Counter[str]) -> str:
    """The system's name, with the configuration where several rows have it."""
    name = row.entry.system
    if names[name] > 1 and row.entry.configuration:
        name = f"{name} ({row.entry.configuration})"
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip() + "…"


def _lead(
    board: Board,
    best: Row,
    relative: float | None,
    statement: Statement,
    least: float | None,
    *,
    others: int,
) -> str:
    """The lead over the baseline, and whether it is more than chance.

    Over hidden judgements `least` is the smallest difference that is, of which a smaller one is not shown to be.
    """
    if best.entry.is_baseline:
        return " (the baseline)" if others else " (the baseline, alone so far)"
    if relative is None:
        return ", no baseline"
    side = "below" if relative < 0 else "over"
    lead = f", {signed(relative, 1, percent=True).lstrip(MINUS)} % {side} {board.baseline}"
    p = "" if statement.p is None else f", p {p_text(statement.p)}"
    if statement.better is None:
        return lead
    if least is not None:
        return f"{lead} ({'significant' if statement.better else 'not significant'}: needs {least:+.3f})"
    return f"{lead} ({'significant' if statement.better else 'not significant'}{p})"


def p_text(p: float) -> str:
    """`= .037`, `< .001`."""
    return "< .001" if p < 0.001 else f"= {p:.3f}".replace("0.", ".")


def _ties(tied: Sequence[Row], names: Counter[str]) -> str:
    if not tied:
        return "No system ties with it."
    named = " and ".join(_name(row, names) for row in tied)
    if len(tied) > MOST_NAMED or len(named) > LONGEST_NAME:
        return f"{len(tied)} {'systems tie' if len(tied) > 1 else 'system ties'} with it."
    return f"{named} {'tie' if len(tied) > 1 else 'ties'} with it."


def _untested(board: Board, rows: Sequence[Row], *, reported: bool, tested: bool) -> str:
    """Why nothing is said of ties; nothing where one system has none, and where no test is to come."""
    if len(rows) < 2:
        return ""
    if reported:
        return "Significance and ties not tested (only means are reported)."
    if not tested:
        return "Significance and ties not tested over datasets."
    return "Ties are not known yet." if board.awaited else ""


def _cheapest(
    rows: Sequence[Row], best: Row, key: str, tied: Sequence[Row], *, lower_is_better: bool
) -> tuple[Row | None, float | None, str]:
    """The quickest of the systems that are near the best or tie with it, its latency, and how that is said."""
    score = _number(best, key) or 0.0
    near = [
        (latency, row)
        for row in rows
        if (latency := _number(row, "mean-latency")) is not None and (value := _number(row, key)) is not None
        and (row in tied or (value * NEAR_BEST <= score if lower_is_better else value >= score * NEAR_BEST))
    ]  # fmt: skip
    if not near:
        return None, None, "Cost: not measured."
    latency, cheapest = min(near, key=lambda found: found[0])
    cost = f"{format_quantity(latency, 2)} ms"
    if cheapest is best:
        return best, latency, f"It is also the cheapest near the best, {cost}."
    name = _name(cheapest, Counter())
    return cheapest, latency, f"Cheapest near it: {name}, {cost}."
