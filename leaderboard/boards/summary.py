"""The statements above a board: the best system, its lead, the systems not separable from it, and the cost.

Each is a part with a label of its own, so that a reader finds it. Page, API, exports, feeds and share images use these
words. What is said of certainty comes from
`results.significance.statements`, which knows how the judgements are protected. It is of the whole board: no filter
changes it, and where some are on it says so.
"""

from collections import Counter
from collections.abc import Sequence

from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from evaluation.measures.registry import upper_bound_of
from leaderboard.boards.model import DELTA, SEPARATED, Board, Part, Row, Summary
from leaderboard.boards.wording import p_text, p_values_text, pairs_text
from leaderboard.core.measures import better
from leaderboard.core.text.numbers import format_quantity, format_value, signed, signed_percent
from leaderboard.results.board_rows.entry_rows import REPORTED, SCORED
from leaderboard.results.significance.statements import UNKNOWN, Statement

#: A system that costs least is looked for among those that have this share of the best score.
NEAR_BEST = 0.95
#: A longer name of a system is said by its beginning, so that a telephone shows all of a part in two lines.
LONGEST_NAME = 34
#: Total length of the names of systems not separable from the best; the first is always named, others are counted.
MOST_NAMED = 48

#: Why the best has no latency, by how it was obtained; one that ran here was not timed.
_NOT_TIMED = {
    SCORED: gettext_lazy("not timed (uploaded run)"),
    REPORTED: gettext_lazy("not reported"),
}


def summarise(
    board: Board,
    *,
    measure: str = "",
    key: str = "",
    relative: str = "relative",
    filtered: bool = False,
) -> Summary | None:
    """Return the summary of a ranked board with all its rows, or None if no row has a rank.

    `measure` is the name of the score, `key` and `relative` are the columns of the score and of its ratio to the
    baseline, all by default those of a dataset. A summary of a `filtered` view says that it is of all rows.
    """
    measure, key, said = measure or board.measure, key or board.measure, board.statements
    tested, lower_is_better = not board.views, better(board.measure) == "lower"
    valued = [row for row in board.rows if row.value(key) is not None]
    scored = [row for row in valued if row.ranked_in == SCORED]
    reported, rows = not scored, scored or [row for row in valued if row.ranked_in == REPORTED]
    if not rows:
        return None
    best = (min if lower_is_better else max)(rows, key=lambda row: _number(row, key) or 0.0)
    names = Counter(row.entry.system for row in board.rows)
    score, ratio = _number(best, key) or 0.0, _number(best, relative)
    statement = said.of(best.entries[0], board.measure) if best.entries else UNKNOWN
    ties = said.tied_with_best(board.measure)
    tied = [row for row in rows if row is not best and ties.intersection(row.entries)]
    tied.sort(key=lambda row: _number(row, key) or 0.0, reverse=not lower_is_better)
    cheapest, latency, cost = _cheapest(rows, best, key, tied, lower_is_better=lower_is_better)
    certain = (
        _ties(tied, names, everything=len(tied) == len(rows) - 1)
        if ties and len(rows) > 1
        else _untested(board, rows, reported=reported, tested=tested)
    )
    baseline = next((row for row in tied if row.entry.is_baseline), None) if statement.better else None
    parts = [_lead(board, best, ratio, baseline, alone=len(rows) == 1)]
    if certain:
        detail = pairs_text(said, board.measure) if ties and len(rows) > 1 else ""
        parts.append(Part(_("Not separable from the best"), certain, detail=detail))
    above = _above_bound(rows, best, key, statement)
    if above is not None:
        parts.append(_unjudged(board.baseline, above=above))
    about = ", ".join(filter(None, [best.entry.team or "", _("challenged") if best.entry.challenged else ""]))
    return Summary(
        _label(reported=reported, total=len(board.rows) if filtered else 1),
        _name(best, names),
        f"{f' ({about})' if about else ''}, {measure} {format_value(score, 3)}",
        [*parts, Part(_("Cost"), cost)],
        best.entry.slug,
        measure,
        score,
        ratio,
        statement,
        [row.entry.slug for row in tied],
        cheapest.entry.slug if cheapest else None,
        latency,
        above,
        baseline is not None,
    )


def _above_bound(rows: Sequence[Row], best: Row, key: str, statement: Statement) -> bool | None:
    """Whether a best that is better than the baseline is so even where all that the baseline found unjudged is good.

    None where nothing is unjudged there, or that is not known.
    """
    bound = upper_bound_of(key)
    baseline = next((row for row in rows if row.entry.is_baseline), None)
    if not statement.better or baseline is None or not bound:
        return None
    most, shown, score = _number(baseline, bound), _number(baseline, key), _number(best, key)
    if most is None or shown is None or score is None or most <= shown:
        return None
    return score > most


def _unjudged(baseline: str, *, above: bool) -> Part:
    """Return whether the lead over the baseline holds even if all that it found unjudged is relevant."""
    holds = _("cannot reverse the lead over %(baseline)s")
    text = holds if above else _("worst case would reverse the lead over %(baseline)s")
    return Part(_("Unjudged documents"), text % {"baseline": baseline})


def _label(*, reported: bool, total: int) -> str:
    """What the best is called; of all `total` systems, where there are several and a view hides some."""
    if total == 1:
        return _("Best reported") if reported else _("Best")
    label = _("Best reported of all %(total)d systems") if reported else _("Best of all %(total)d systems")
    return label % {"total": total}


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
    tied_baseline: Row | None,
    *,
    alone: bool,
) -> Part:
    """Return the lead over the baseline, and whether it is significant, if such results are tested.

    The difference and its interval do not change when others submit; a star marks significance after correction.
    `tied_baseline` is the baseline if the tests of all pairs do not separate it from a best that is better in its own
    test.
    """
    if best.entry.is_baseline:
        return Part(
            _("Lead"), _("the baseline, alone so far") if alone else _("none (the best is the baseline)")
        )
    if relative is None and _number(best, DELTA) is None:
        return Part(_("Lead"), _("no baseline to compare with"))
    label = _("vs %(baseline)s") % {"baseline": board.baseline}
    # A baseline that scores 0 has a difference and no relative one.
    lead = signed(_number(best, DELTA), 3) if relative is None else signed_percent(relative)
    statement = board.statements.of(best.entries[0], board.measure) if best.entries else UNKNOWN
    if statement.better is None:
        tested = not board.views and best.ranked_in != REPORTED
        return Part(label, lead if tested else _("%(lead)s, not tested") % {"lead": lead})
    if tied_baseline is not None:
        verdict = _("better than %(baseline)s when tested alone") % {"baseline": board.baseline}
    else:
        verdict = _("significant") if statement.better else _("not significant")
    difference = signed(_number(best, DELTA), 3)
    if statement.interval is not None:
        difference += " [{}, {}]".format(*(signed(end, 3) for end in statement.interval))
    star = SEPARATED if statement.holds_after_correction else ""
    text = f"{lead}{star} ({difference}), {verdict}"
    state = "" if tied_baseline is not None else "up" if statement.better else "ns"
    return Part(label, text, state, _lead_detail(board, statement, tied_baseline))


def _lead_detail(board: Board, statement: Statement, tied_baseline: Row | None) -> str:
    """Return the p-values of the lead, or on hidden judgments the threshold."""
    said, measure = board.statements, board.measure
    least = said.least_difference(measure)
    if least is not None:
        detail = _("threshold %(least)s") % {"least": f"{least:+.3f}"}
    else:
        detail = _("95%% interval in brackets; %(p)s") % {"p": p_values_text(statement)}
    if tied_baseline is None:
        return detail
    p = said.of(tied_baseline.entries[0], measure).p_best
    facts = {"detail": detail, "pairs": pairs_text(said, measure)}
    if p is None:
        return _("%(detail)s; not separable: %(pairs)s") % facts
    return _("%(detail)s; not separable: p %(p)s with %(pairs)s") % {**facts, "p": p_text(p)}


def _ties(tied: Sequence[Row], names: Counter[str], *, everything: bool) -> str:
    """Return the systems that are not separable from the best: as many names as fit, and the number of others."""
    if not tied:
        return _("none")
    if everything and len(tied) > 1:
        baseline = next((_name(row, names) for row in tied if row.entry.is_baseline), "")
        text = _("all %(others)d others, including %(baseline)s") if baseline else _("all %(others)d others")
        return text % {"others": len(tied), "baseline": baseline}
    named = [_name(row, names) for row in tied]
    room = [sum(map(len, named[: number + 1])) <= MOST_NAMED for number in range(len(named))]
    told = max(1, sum(room))
    if told == len(named):
        return ", ".join(named)
    more = len(named) - told
    text = ngettext("%(names)s and %(more)d more", "%(names)s and %(more)d more", more)
    return text % {"names": ", ".join(named[:told]), "more": more}


def _untested(board: Board, rows: Sequence[Row], *, reported: bool, tested: bool) -> str:
    """Return the reason why separability is unknown; empty for one system, or if no test will follow."""
    if len(rows) < 2:
        return ""
    if reported:
        return _("not tested (no per-query scores)")
    if not tested:
        return _("not tested over several datasets")
    return _("not known yet") if board.awaited else ""


def _cheapest(
    rows: Sequence[Row], best: Row, key: str, tied: Sequence[Row], *, lower_is_better: bool
) -> tuple[Row | None, float | None, str]:
    """Return the fastest system near the best or not separable from it, its latency, and the cost of the best."""
    score = _number(best, key) or 0.0
    near = [
        (latency, row)
        for row in rows
        if (latency := _number(row, "mean-latency")) is not None and (value := _number(row, key)) is not None
        and (row in tied or (value * NEAR_BEST <= score if lower_is_better else value >= score * NEAR_BEST))
    ]  # fmt: skip
    own = next((_("%(time)s ms per query") % _time(latency) for latency, row in near if row is best), "")
    if not own and (doubtful := best["mean-latency"]).mark:
        own = _("%(time)s ms per query, doubtful") % {"time": doubtful.text}
    own = own or _reported_cost(best) or str(_NOT_TIMED.get(best.entry.provenance, _("not timed")))
    if not near:
        return None, None, own
    latency, cheapest = min(near, key=lambda found: found[0])
    if cheapest is best:
        return best, latency, _("%(cost)s, the fastest of comparable systems") % {"cost": own}
    facts = {"cost": own, "name": _name(cheapest, Counter())} | _time(latency)
    return cheapest, latency, _("%(cost)s; close but faster: %(name)s, %(time)s ms") % facts


def _reported_cost(row: Row) -> str:
    """The latency that a publication reports; empty where it has none."""
    on = (("latency-gpu", _("%(time)s ms (GPU)")), ("latency-cpu", _("%(time)s ms (CPU)")))
    told = [text % _time(latency) for key, text in on if (latency := _number(row, key)) is not None]
    return _("%(cost)s per query, as reported") % {"cost": _(" or ").join(told)} if told else ""


def _time(latency: float) -> dict[str, str]:
    return {"time": format_quantity(latency, 2)}
