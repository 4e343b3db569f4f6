"""The statements above a board: the best system, its lead, the systems not separable from it, and the cost.

Each is a part with a label of its own, so that a reader finds it. Page, API, exports, feeds and share images use these
words. What is said of certainty comes from
`results.significance.statements`, which knows how the judgements are protected. It is of the whole board: no filter
changes it, and where some are on it says so.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import itemgetter

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
    board: Board, *, measure: str = "", key: str = "", relative: str = "relative", filtered: bool = False
) -> Summary | None:
    """Return the summary of a ranked board with all its rows, or None if no row has a rank.

    `measure` is the name of the score, `key` and `relative` are the columns of the score and of its ratio to the
    baseline, all by default those of a dataset. A summary of a `filtered` view says that it is of all rows.
    """
    key, lower = key or board.measure, better(board.measure) == "lower"
    valued = [row for row in board.rows if row.value(key) is not None]
    scored = [row for row in valued if row.ranked_in == SCORED]
    rows = scored or [row for row in valued if row.ranked_in == REPORTED]
    if not rows:
        return None
    best = (min if lower else max)(rows, key=lambda row: _number(row, key) or 0.0)
    ties = board.statements.tied_with_best(board.measure)
    tied = [row for row in rows if row is not best and ties.intersection(row.entries)]
    tied.sort(key=lambda row: _number(row, key) or 0.0, reverse=not lower)
    names, score = Counter(row.entry.system for row in board.rows), _number(best, key) or 0.0
    statement = board.statements.of(best.entries[0], board.measure) if best.entries else UNKNOWN
    leader = _Leader(board, key, rows, best, tied, score, statement, names)
    return leader.summary(measure or board.measure, relative, filtered=filtered)


@dataclass(frozen=True, slots=True)
class _Leader:
    """The best row among the ranked `rows` of one kind, with the rows that are not separable from it.

    `statement` is the result of its own test against the baseline. `names` counts the rows of each system on the board.
    """

    board: Board
    key: str
    rows: Sequence[Row]
    best: Row
    tied: Sequence[Row]
    score: float
    statement: Statement
    names: Counter[str]

    def summary(self, measure: str, relative: str, *, filtered: bool) -> Summary:
        """Return the statements on the board."""
        board, best, rows, statement = self.board, self.best, self.rows, self.statement
        ratio, reported, total = _number(best, relative), best.ranked_in == REPORTED, len(board.rows)
        baseline = next((row for row in self.tied if row.entry.is_baseline), None)
        baseline = baseline if statement.better else None
        cheapest, latency, cost = self._cheapest()
        parts = [self._lead(ratio, baseline)]
        if board.statements.tied_with_best(board.measure) and len(rows) > 1:
            detail = pairs_text(board.statements, board.measure)
            parts.append(Part(_("Not separable from the best"), self._ties(), detail=detail))
        elif reason := self._untested():
            parts.append(Part(_("Not separable from the best"), reason))
        above = self._above_bound()
        if above is not None:
            # Documents that the baseline found and nobody judged may be relevant.
            holds = _("cannot reverse the lead over %(baseline)s")
            text = holds if above else _("worst case would reverse the lead over %(baseline)s")
            parts.append(Part(_("Unjudged documents"), text % {"baseline": board.baseline}))
        label = _("Best reported") if reported else _("Best")
        if filtered and total > 1:
            every = _("Best reported of all %(total)d systems"), _("Best of all %(total)d systems")
            label = every[not reported] % {"total": total}
        about = ", ".join(
            filter(None, [best.entry.team or "", _("challenged") if best.entry.challenged else ""])
        )
        return Summary(
            label,
            _name(best, self.names),
            f"{f' ({about})' if about else ''}, {measure} {format_value(self.score, 3)}",
            [*parts, Part(_("Cost"), cost)],
            best.entry.slug,
            measure,
            self.score,
            ratio,
            statement,
            [row.entry.slug for row in self.tied],
            cheapest.entry.slug if cheapest else None,
            latency,
            above,
            baseline is not None,
        )

    def _above_bound(self) -> bool | None:
        """Return whether the leader beats the baseline even if all that the baseline found unjudged is relevant.

        None if nothing is unjudged there, if that is unknown, or if the leader is not better than the baseline.
        """
        bound = upper_bound_of(self.key)
        baseline = next((row for row in self.rows if row.entry.is_baseline), None)
        if not self.statement.better or baseline is None or not bound:
            return None
        most, shown = _number(baseline, bound), _number(baseline, self.key)
        return None if most is None or shown is None or most <= shown else self.score > most

    def _lead(self, relative: float | None, tied_baseline: Row | None) -> Part:
        """Return the lead over the baseline, and whether it is significant, if such results are tested.

        The difference and its interval do not change when others submit; a star marks significance after correction.
        `tied_baseline` is the baseline if the tests of all pairs do not separate it from a best that is better in its
        own test.
        """
        board, best, statement = self.board, self.best, self.statement
        if best.entry.is_baseline:
            alone = len(self.rows) == 1
            return Part(
                _("Lead"), _("the baseline, alone so far") if alone else _("none (the best is the baseline)")
            )
        delta = _number(best, DELTA)
        if relative is None and delta is None:
            return Part(_("Lead"), _("no baseline to compare with"))
        label = _("vs %(baseline)s") % {"baseline": board.baseline}
        # A baseline that scores 0 has a difference and no relative one.
        lead = signed(delta, 3) if relative is None else signed_percent(relative)
        if statement.better is None:
            tested = not board.views and best.ranked_in != REPORTED
            return Part(label, lead if tested else _("%(lead)s, not tested") % {"lead": lead})
        if tied_baseline is not None:
            verdict = _("better than %(baseline)s when tested alone") % {"baseline": board.baseline}
        else:
            verdict = _("significant") if statement.better else _("not significant")
        difference = signed(delta, 3)
        if statement.interval is not None:
            difference += " [{}, {}]".format(*(signed(end, 3) for end in statement.interval))
        star = SEPARATED if statement.holds_after_correction else ""
        text = f"{lead}{star} ({difference}), {verdict}"
        state = "" if tied_baseline is not None else "up" if statement.better else "ns"
        least = board.statements.least_difference(board.measure)
        if least is not None:  # the judgments are hidden
            detail = _("threshold %(least)s") % {"least": f"{least:+.3f}"}
        else:
            detail = _("95%% interval in brackets; %(p)s") % {"p": p_values_text(statement)}
        if tied_baseline is not None:
            p = board.statements.of(tied_baseline.entries[0], board.measure).p_best
            facts = {"detail": detail, "pairs": pairs_text(board.statements, board.measure)}
            if p is None:
                detail = _("%(detail)s; not separable: %(pairs)s") % facts
            else:
                detail = _("%(detail)s; not separable: p %(p)s with %(pairs)s") % {**facts, "p": p_text(p)}
        return Part(label, text, state, detail)

    def _ties(self) -> str:
        """Return the systems that are not separable from the best: as many names as fit, and the number of others."""
        tied = self.tied
        if not tied:
            return _("none")
        named = [_name(row, self.names) for row in tied]
        if len(tied) == len(self.rows) - 1 and len(tied) > 1:
            baseline = next((_name(row, self.names) for row in tied if row.entry.is_baseline), "")
            text = (
                _("all %(others)d others, including %(baseline)s") if baseline else _("all %(others)d others")
            )
            return text % {"others": len(tied), "baseline": baseline}
        shown = max(1, sum(length <= MOST_NAMED for length in accumulate(map(len, named))))
        if shown == len(named):
            return ", ".join(named)
        more = len(named) - shown
        text = ngettext("%(names)s and %(more)d more", "%(names)s and %(more)d more", more)
        return text % {"names": ", ".join(named[:shown]), "more": more}

    def _untested(self) -> str:
        """Return the reason why separability is unknown; empty for one system, or if no test will follow."""
        if len(self.rows) < 2:
            return ""
        if self.best.ranked_in == REPORTED:
            return _("not tested (no per-query scores)")
        if self.board.views:
            return _("not tested over several datasets")
        return _("not known yet") if self.board.awaited else ""

    def _cheapest(self) -> tuple[Row | None, float | None, str]:
        """Return the fastest system near the best or not separable from it, its latency, and the cost of the best."""
        best, score, lower = self.best, self.score, better(self.board.measure) == "lower"
        near = [
            (latency, row)
            for row in self.rows
            if (latency := _number(row, "mean-latency")) is not None
            and (value := _number(row, self.key)) is not None
            and (row in self.tied or (value * NEAR_BEST <= score if lower else value >= score * NEAR_BEST))
        ]
        own = next((_("%(time)s ms per query") % _time(latency) for latency, row in near if row is best), "")
        if not own and (doubtful := best["mean-latency"]).mark:
            own = _("%(time)s ms per query, doubtful") % {"time": doubtful.text}
        on = (("latency-gpu", _("%(time)s ms (GPU)")), ("latency-cpu", _("%(time)s ms (CPU)")))
        stated = [text % _time(value) for key, text in on if (value := _number(best, key)) is not None]
        if not own and stated:
            own = _("%(cost)s per query, as reported") % {"cost": _(" or ").join(stated)}
        own = own or str(_NOT_TIMED.get(best.entry.provenance, _("not timed")))
        if not near:
            return None, None, own
        latency, cheapest = min(near, key=itemgetter(0))
        if cheapest is best:
            return best, latency, _("%(cost)s, the fastest of comparable systems") % {"cost": own}
        facts = {"cost": own, "name": _name(cheapest, Counter())} | _time(latency)
        return cheapest, latency, _("%(cost)s; close but faster: %(name)s, %(time)s ms") % facts


def _number(row: Row, key: str) -> float | None:
    value = row.value(key)
    return value if isinstance(value, (float, int)) else None


def _name(row: Row, names: Counter[str]) -> str:
    """Return the system's name, with the configuration if several rows have it."""
    name = row.entry.system
    if names[name] > 1 and row.entry.configuration:
        name = f"{name} ({row.entry.configuration})"
    return name if len(name) <= LONGEST_NAME else name[: LONGEST_NAME - 1].rstrip() + "…"


def _time(latency: float) -> dict[str, str]:
    return {"time": format_quantity(latency, 2)}
