"""The statements above a board: the best system, its lead, systems not separable from it, and the cost.

Each statement has a label. Page, API, exports, feeds, and share images use the same words. Statements on certainty
come from `results.significance.statements`, which implements the protection of hidden judgments. They cover the whole
board: filters do not change them, and a filtered view says so.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from django.contrib.humanize.templatetags.humanize import apnumber
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from leaderboard.boards.forest import MAX_ROWS, ForestRow, Role, draw_forest
from leaderboard.boards.model import DELTA, EFFICIENCY, SEPARATED, Board, DatasetFacts, Part, Row, Summary
from leaderboard.boards.wording import (
    exceeds_bound,
    p_text,
    p_values_text,
    pairs_text,
    ranking_source,
    shorten,
    significance_word,
    unjudged_text,
)
from leaderboard.core.measures import better
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.numbers import MINUS, format_quantity, format_value, signed, signed_percent
from leaderboard.results.board_rows.entry_rows import REFERENCE, REPORTED, SCORED
from leaderboard.results.significance.statements import Statement
from leaderboard.systems.baselines import BM25, BM25_SETTINGS

#: Minimum score, as a share of the best score, of systems considered as cheaper alternatives.
NEAR_BEST = 0.95
#: Maximum length of a system's name, so that each statement fits into two lines on a phone.
MAX_NAME = 34
#: Maximum total length of the names of systems not separable from the best, and the number of names if they are
#: longer, so that their statement fits into three lines on a phone. The others are counted.
MAX_NAMES_LENGTH, MAX_NAMES = 72, 3

#: Reasons for an unknown latency by provenance; a system that ran on this site was not timed.
_NOT_TIMED = {SCORED: gettext_lazy("not timed (uploaded run)"), REPORTED: gettext_lazy("not reported")}
#: Texts of reported latencies by column.
_REPORTED_LATENCIES = {
    "latency-gpu": gettext_lazy("%(time)s ms (GPU)"),
    "latency-cpu": gettext_lazy("%(time)s ms (CPU)"),
}
#: Texts of figures that answer runs state, by column.
_STATED_FIGURES = {
    "SearchCalls": gettext_lazy("%(value)s searches per query"),
    "Cost": gettext_lazy("%(value)s USD per query, as stated"),
}


def summarize_dataset(board: Board, facts: DatasetFacts, *, is_filtered: bool) -> Summary | None:
    """Return the summary of a dataset's board, with the access, origin, and density of the judgments."""
    judges = _("judged by %(judges)s") % {"judges": ", ".join(facts.judges)} if facts.judges else ""
    if not facts.source and not judges:
        judges = _("judges not stated")
    density = _("%(number).1f relevant per query")
    relevant = density % {"number": facts.relevant_per_query} if facts.relevant_per_query else ""
    access = ", ".join(filter(None, [_("hidden") if facts.hidden else _("open"), judges]))
    judgments = Part(_("Judgments"), access, detail=", ".join(filter(None, [facts.source, relevant])))
    leader = _find_leader(board, board.measure)
    return leader.summary(board.measure, "relative", judgments, is_filtered=is_filtered) if leader else None


def summarize(board: Board, *, measure: str, key: str, relative: str, is_filtered: bool) -> Summary | None:
    """Return the summary of a ranked board with all its rows, or None if no row has a rank.

    `measure` is the name of the score, `key` and `relative` are the columns of the score and of its ratio to the
    baseline. A summary of a `is_filtered` view says that it is of all rows.
    """
    leader = _find_leader(board, key)
    return leader.summary(measure, relative, is_filtered=is_filtered) if leader else None


def _find_leader(board: Board, key: str) -> _Leader | None:
    """Return the best scored row by the column `key`, or None without ranked values.

    Without scored rows, it is the best row of the reported ranking with most rows.
    """
    rows_with_score = [row for row in board.rows if row.value(key) is not None]
    scored_rows = [row for row in rows_with_score if row.ranked_in == SCORED]
    rows = scored_rows or [row for row in rows_with_score if row.ranking in board.rankings[:1]]
    if not rows:
        return None
    rows.sort(key=lambda row: _number(row, key) or 0.0, reverse=better(board.measure) != "lower")
    best, ties = rows[0], board.statements.tied_with_best(board.measure)
    tied_rows = [row for row in rows[1:] if ties.intersection(row.entries)]
    names = Counter(row.entry.system for row in board.rows)
    return _Leader(board, key, rows, best, tied_rows, _number(best, key) or 0.0, _statement(board, best), names)


@dataclass(frozen=True, slots=True)
class _Leader:
    """The best row among the ranked `rows` of one kind, best first, with the rows not separable from it.

    `statement` is the result of its own test against the baseline. `names` counts the rows of each system on the
    board.
    """

    board: Board
    key: str
    rows: Sequence[Row]
    best: Row
    tied: Sequence[Row]
    score: float
    statement: Statement
    names: Counter[str]

    def summary(self, measure: str, relative: str, judgments: Part | None = None, *, is_filtered: bool) -> Summary:
        """Return the board's summary, with a statement on the `judgments` if the best system was scored on them.

        See `summarize` for the other arguments.
        """
        board, best, rows, statement = self.board, self.best, self.rows, self.statement
        ratio, is_reported, total = _number(best, relative), best.ranked_in == REPORTED, len(board.rows)
        baseline_tied = self._is_tied_with_baseline and bool(statement.better)
        cheapest, latency, cost = self._cheapest()
        reported = self._better_reported()
        primary_parts, secondary_parts = [self._lead_part(ratio, baseline_tied=baseline_tied)], list[Part]()
        primary_parts[:0] = [reported] if reported else []
        if board.statements.tied_with_best(board.measure) and len(rows) > 1:
            detail = ", ".join(filter(None, [pairs_text(board.statements, board.measure), board.tested_over]))
            primary_parts.append(Part(_("Not separable from the best"), self._ties(), detail=detail))
        elif reason := self._untested_reason():
            primary_parts.append(Part(_("Not separable from the best"), reason))
        is_safe = self._exceeds_bound()
        if unjudged := self._unjudged_documents(is_safe):
            share = "" if is_safe is None else self._unjudged_share
            state, parts = ("warn", primary_parts) if is_safe is False else ("", secondary_parts)
            parts.append(Part(_("Unjudged documents"), unjudged, state, share))
        if is_reported:
            judgments = Part(_("Judgments"), _("public, of the original collections; scores copied, not recomputed"))
        secondary_parts += [judgments] if judgments else []
        if references := ", ".join(self._reference_texts()):
            secondary_parts.append(Part(_("References"), references))
        label = _("Best reported") if is_reported else _("Best") if reported is None else _("Best scored")
        if self._has_other_rankings:
            label = _("Best reported by %s") % ranking_source(best)
        if is_filtered and total > 1:
            label = _("%(label)s of all %(total)d systems") % {"label": label, "total": total}
        details = ", ".join(filter(None, [best.entry.team, _("manual") if best.entry.run_type == "manual" else ""]))
        least = (board.statements.least_difference(board.measure) or 0.0) * (-1 if self.lower else 1)
        return Summary(
            label,
            _name(best, self.names),
            f"{f'({details}), ' if details else ''}{measure} {format_value(self.score, 3)}",
            primary_parts,
            [*secondary_parts, Part(_("Cost"), cost)],
            best.entry.slug,
            measure,
            self.score,
            ratio,
            statement,
            [row.entry.slug for row in self.tied],
            cheapest.entry.slug if cheapest else None,
            latency,
            is_safe,
            baseline_tied,
            best.entry.system_id if best.entry.challenged else None,
            self._headline(ratio, measure, better_reported=reported),
            draw_forest(list(self._forest_rows(relative)), measure, board.baseline, len(rows), least),
            self._origin(),
            best.entry.missing_queries or 0,
            reported,
        )

    @property
    def lower(self) -> bool:
        """Whether lower scores are better."""
        return better(self.board.measure) == "lower"

    @property
    def baseline(self) -> Row | None:
        """The best baseline among the rows, or a reference that is the baseline."""
        return next((row for row in (*self.rows, *self._references()) if row.entry.is_baseline), None)

    @property
    def _has_other_rankings(self) -> bool:
        """Whether the best row is reported, and other sources or dataset revisions are ranked separately."""
        return self.best.ranked_in == REPORTED and len(self.board.rankings) > 1

    def _references(self) -> list[Row]:
        return [row for row in self.board.rows if row.ranked_in == REFERENCE and row.value(self.key) is not None]

    def _reference_texts(self) -> Iterator[str]:
        """Yield the best reference of each type with its system, and the number of others."""
        rows = sorted(self._references(), key=lambda row: _number(row, self.key) or 0.0, reverse=not self.lower)
        names = [row.entry.reference_name for row in rows]
        for name in dict.fromkeys(names):
            best, count = rows[names.index(name)], names.count(name)
            system = _name(best, self.names)
            text = _("%(name)s, best of %(count)d") % {"name": system, "count": count} if count > 1 else system
            yield f"{_(name)} {format_value(_number(best, self.key), 3)} ({text})"

    def _better_reported(self) -> Part | None:
        """Return a statement on the best of the other reported rankings, None if it is not above the best system."""
        rows = [row for row in self.board.rows if row.ranked_in == REPORTED and row.ranking != self.best.ranking]
        sign = -1 if self.lower else 1
        rows = [row for row in rows if (n := _number(row, self.key)) is not None and sign * n > sign * self.score]
        if not rows:
            return None
        row = max(rows, key=lambda row: sign * (_number(row, self.key) or 0.0))
        label = _("Best of other sources") if self.best.ranked_in == REPORTED else _("Best reported")
        text = _("%(name)s, %(score)s, not tested")
        text %= {"name": _name(row, self.names), "score": format_value(_number(row, self.key), 3)}
        return Part(label, text, detail=_("%(source)s; ranked separately") % {"source": ranking_source(row)})

    def _origin(self) -> str:
        """Return the provenance of the best score, with the number of scored systems that are not ranked with it."""
        if self.best.ranked_in != REPORTED:
            origin = _("uploaded") if self.best.entry.provenance == SCORED else _("run by Runboard")
            if not self.board.views:
                text = (
                    _("%(origin)s, results for all queries") if self.best.entry.missing_queries == 0 else "%(origin)s"
                )
                origin = text % {"origin": f"{origin} {format_day(self.best.entry.published)}"}
            return origin
        origin = ranking_source(self.best) if self._has_other_rankings else str(self.best.value("by"))
        others = sum(row.ranked_in != REPORTED for row in self.board.rows) if self.board.views else 0
        if not others:
            return origin
        text = ngettext("%(count)d scored system lacks datasets", "%(count)d scored systems lack datasets", others)
        return f"{origin}; {text % {'count': others}}"

    def _headline(self, relative: float | None, measure: str, *, better_reported: Part | None) -> str:
        """Return the sentence on the best system without its name, with which the sentence begins.

        `better_reported` is the statement on a better reported score, if there is one.
        """
        facts = {"baseline": self.board.baseline, "measure": measure, "score": format_value(self.score, 3)}
        if self.best.entry.is_baseline:
            lead = _("is the baseline and leads")
            if len(self.rows) == 1:
                lead = _("is the baseline, and no other system is ranked with it yet")
        elif relative is None:
            lead = _("has the best %(measure)s, %(score)s") % facts
            if self._untested_reason() and not self.board.pending_columns:
                lead = _("%(lead)s (differences not tested)") % {"lead": lead}
        else:
            lead = _("leads %(baseline)s by %(percent)s (%(certainty)s)")
            if (relative > 0) == self.lower and relative:
                lead = _("is %(percent)s behind %(baseline)s (%(certainty)s)")
            elif self._is_tied_with_baseline:
                lead = _("is first, %(percent)s above %(baseline)s (%(certainty)s)")
                if self.lower:
                    lead = _("is first, %(percent)s below %(baseline)s (%(certainty)s)")
            percent, *ends = _percents(abs(relative), *self._lead_ends(relative))
            lead %= {**facts, "percent": f"{percent}%", "certainty": self._lead_certainty(ends)}
        if self._has_other_rankings:
            lead = _("%(lead)s among results of %(source)s") % {"lead": lead, "source": ranking_source(self.best)}
        elif self.best.ranked_in != REPORTED and len(self.rows) > 1 and better_reported is not None:
            lead = _("%(lead)s among scored systems") % {"lead": lead}
        first = [row.entry for row in self.rows if _number(row, self.key) == self.score]
        if equal := {entry.slug: entry.system for entry in first if entry.slug != self.best.entry.slug}:
            name, *more = equal.values()
            others = _("%(count)s others") % {"count": apnumber(len(equal))} if more else name
            ties = _("ties with %(others)s at %(score)s") % {**facts, "others": others}
            lead = ties if self.best.entry.is_baseline or not relative else f"{ties}, {lead}"
        if self.best.entry.challenged:
            lead = _("(challenged) %(lead)s") % {"lead": lead}
        return f"{lead}{self._separation()}"

    @property
    def _is_tied_with_baseline(self) -> bool:
        return not self.best.entry.is_baseline and any(row.entry.is_baseline for row in self.tied)

    def _separation(self) -> str:
        """Return the end of the headline, on the systems not separable from the best; empty if they are unknown."""
        if not self.board.statements.tied_with_best(self.board.measure) or len(self.rows) < 2:
            return ""
        count = len(self.tied) - self._is_tied_with_baseline
        if self._is_tied_with_baseline:
            text = _("; not separable from %(baseline)s")
            text += ngettext(" and %(count)s other", " and %(count)s others", count) if count else ""
        elif self.tied:
            text = ngettext(
                "; %(count)s system cannot be separated from it",
                "; %(count)s systems cannot be separated from it",
                count,
            )
        else:
            count = len(self.rows) - 1
            text = ngettext(
                "; the other system can be separated from it", "; all %(count)s others can be separated from it", count
            )
        return text % {"baseline": self.board.baseline, "count": apnumber(count)}

    @property
    def _untested_lead(self) -> str:
        return _("significance not known yet") if self.board.pending_columns else _("not tested")

    def _lead_ends(self, relative: float) -> Sequence[float]:
        """Return the ends of the interval of the relative lead, the lower one first; empty if it is unknown."""
        interval, delta = self.statement.interval, _number(self.best, DELTA)
        if interval is None or not delta or not relative:
            return ()
        return sorted(end * relative / delta * (-1 if self.lower else 1) for end in interval)

    def _lead_certainty(self, ends: Sequence[str]) -> str:
        """Return the lead's interval in percent if its `ends` are known, or else the result of its test."""
        if ends:
            text = _("95%% CI %(low)s to %(high)s%%") % {"low": ends[0], "high": ends[1]}
            return _("%(text)s, uncorrected") % {"text": text} if self.statement.is_lost_by_correction else text
        if self.statement.better is None:
            return _("reported, not tested") if self.best.ranked_in == REPORTED else self._untested_lead
        return significance_word(self.statement)

    def _forest_rows(self, relative: str) -> Iterator[ForestRow]:
        """Yield the best systems with their differences from the baseline, which is always included.

        Systems without a difference are omitted, because their source does not report the baseline. Nothing is yielded
        if the best system is one of them. `relative` is the column of the ratio to the baseline.
        """
        baseline = self.baseline
        rows_with_difference = (row for row in self.rows if self._difference(row, relative) is not None)
        shown_rows = list(islice(rows_with_difference, MAX_ROWS))
        if baseline is None or len(shown_rows) < 2 or shown_rows[0] is not self.best:
            return
        if baseline not in shown_rows:
            shown_rows[MAX_ROWS - 1 :] = [baseline]
        for row in shown_rows:
            name = self.board.baseline if row is baseline else _name(row, self.names)
            tested = _statement(self.board, row)
            facts = tested.interval, self._role(row), tested.is_lost_by_correction
            yield ForestRow(name, self._difference(row, relative) or 0.0, *facts)

    def _difference(self, row: Row, relative: str) -> float | None:
        """Return the difference from the baseline, computed from the ratio if the board has no differences."""
        delta, ratio, score = (_number(row, key) for key in (DELTA, relative, self.key))
        if delta is not None or row.entry.is_baseline:
            return delta or 0.0
        return None if ratio in (None, -1.0) or score is None else score * ratio / (1 + ratio)

    def _role(self, row: Row) -> Role:
        if row.entry.is_baseline:
            return "baseline"
        if row.ranked_in == REPORTED and _statement(self.board, row).ranks is None:
            return "untested"
        return "best" if row is self.best else "tied" if row in self.tied else "other"

    def _exceeds_bound(self) -> bool | None:
        """Return whether the leader beats the baseline even if all unjudged documents of the baseline are relevant.

        Returns None if there are none, if the bound is unknown, or if the leader is not better than the baseline.
        """
        if not self.statement.better or (baseline := self.baseline) is None:
            return None
        return exceeds_bound(self.key, self.score, lambda measure: _number(baseline, measure))

    def _unjudged_documents(self, is_safe: bool | None) -> str:
        """Return a statement on unjudged documents; empty if neither their effect nor their share is known.

        `is_safe` is the result of `_exceeds_bound`.
        """
        if is_safe is not None:
            return unjudged_text(is_safe, self.board.baseline)
        if self.board.statements.published is not None:
            return _("not shown, because it would reveal hidden judgments")
        if self.best.ranked_in == REPORTED:
            return _("unknown, because reported results have no runs")
        share = self._unjudged_share
        return _("%(share)s, scored as not relevant") % {"share": share} if share else ""

    @property
    def _unjudged_share(self) -> str:
        """Share of unjudged documents among the best system's top 10, as text; empty if it is unknown."""
        judged = _number(self.best, "Judged@10")
        facts = {"share": round(100 - 100 * (judged or 0.0))}
        return "" if judged is None else _("%(share)d%% of the best system’s top 10") % facts

    def _lead_part(self, relative: float | None, *, baseline_tied: bool) -> Part:
        """Return the lead over the baseline, and whether it is significant if such results are tested.

        Later submissions do not change the difference and its interval; a star marks significance after correction.
        `baseline_tied` tells whether the tests of all pairs do not separate the baseline from a best that is better in
        its own test.
        """
        board, best, statement = self.board, self.best, self.statement
        if best.entry.is_baseline:
            alone = _("none (no other system is ranked with the baseline)")
            return Part(_("Lead"), alone if len(self.rows) == 1 else _("none (the best is the baseline)"))
        delta = _number(best, DELTA)
        if relative is None and delta is None:
            sources = {row.entry.source_key: row.entry.system for row in board.rows if row.entry.is_baseline}
            baseline = next(iter(sources.values()), "")
            if not baseline and len(self.rows) > 1:
                return self._lead_over_second(self.rows[1])
            text = _("%(baseline)s has no %(measure)s") if baseline else _("no baseline to compare with")
            if best.ranked_in == REPORTED and baseline and best.entry.source_key not in sources:
                text = _("%(source)s reports no %(baseline)s")
            return Part(_("Lead"), text % {"baseline": baseline, "measure": board.measure, "source": best.value("by")})
        is_own_bm25 = self.baseline is not None and self.baseline.entry.slug == BM25.slug
        label, note = _("vs %(baseline)s") % {"baseline": board.baseline}, BM25_SETTINGS if is_own_bm25 else ""
        # A baseline that scores 0 has a difference but no ratio.
        difference = signed(delta, 3)
        lead = difference if relative is None else signed_percent(relative)
        if statement.better is None:
            return Part(label, f"{lead}, {self._untested_lead}", note=note)
        verdict = significance_word(statement, is_baseline_tied=baseline_tied)
        if statement.interval is not None:
            difference += " [{}, {}]".format(*(signed(end, 3) for end in statement.interval))
        text = f"{lead}{SEPARATED if statement.holds_after_correction else ''} ({difference}), {verdict}"
        is_doubtful = baseline_tied or statement.is_lost_by_correction
        state = "" if is_doubtful else "up" if statement.better else "ns"
        detail, threshold = p_values_text(statement), board.statements.least_difference(board.measure)
        if threshold is not None:  # The judgments are hidden.
            detail = _("threshold %(least)s") % {"least": f"{threshold:+.3f}"}
        return Part(label, text, state, detail, note)

    def _lead_over_second(self, second: Row) -> Part:
        """Return the lead over the second-best system, and whether the tests of all pairs separate the two."""
        test, lead = _statement(self.board, second), self.score - (_number(second, self.key) or 0.0)
        facts = {"lead": signed(lead, 3), "second": _name(second, self.names)}
        facts["test"] = {None: _("not tested"), True: _("not separable"), False: _("significant")}[test.tied_with_best]
        text = _("no baseline; %(lead)s over the second, %(second)s: %(test)s") % facts
        return Part(_("Lead"), text, detail="" if test.p_best is None else f"p {p_text(test.p_best)}")

    def _ties(self) -> str:
        """Return the systems not separable from the best: their names, with the number of names that do not fit.

        The ranks follow if not all systems are named and no other system is ranked between them.
        """
        if not (tied := self.tied):
            return _("none of %(others)d") % {"others": len(self.rows) - 1}
        names = [_name(row, self.names) for row in tied]
        short = [shorten(re.sub(r"^[\w.-]{3,}/(?=[\w.-]+$)", "", row.entry.system), MAX_NAME) for row in tied]
        # Names need their owner if they are the same without it, or their configuration if other rows have the system.
        names = short if len(set(short)) == len(tied) == sum(self.names[row.entry.system] for row in tied) else names
        baseline = self.board.baseline
        names = [baseline if row.entry.is_baseline else name for row, name in zip(tied, names, strict=True)]
        name_count = len(names) if sum(map(len, names)) <= MAX_NAMES_LENGTH else MAX_NAMES
        if len(tied) == len(self.rows) - 1 > 1:
            name_count, systems = 0, _("all %(others)d others") % {"others": len(tied)}
        else:
            systems = ("; " if any("," in name for name in names) else ", ").join(names[:name_count])
            if (remainder := len(names) - name_count) > 0:
                systems = _("%(names)s and %(more)d more") % {"names": systems, "more": remainder}
                if list(tied) == self.rows[1 : len(tied) + 1]:
                    systems = _("%(systems)s (ranks 2 to %(last)d)") % {"systems": systems, "last": len(tied) + 1}
        if baseline in names[name_count:]:
            systems = _("%(systems)s, including %(baseline)s") % {"systems": systems, "baseline": baseline}
        return systems

    def _untested_reason(self) -> str:
        """Return the reason for unknown separability; empty for a single system, or if all pairs were tested."""
        if len(self.rows) < 2 or self.board.statements.tied_with_best(self.board.measure):
            return ""
        if self.board.pending_columns:
            return _("not known yet")
        if self.best.ranked_in == REPORTED and not self.board.views:
            return _("not testable: the source gives no per-query scores")
        return _("not tested")

    def _cheapest(self) -> tuple[Row | None, float | None, str]:
        """Return the fastest system with a score near the best one, its latency, and the cost of the best system."""
        best, score = self.best, self.score
        candidates = [
            (latency, row)
            for row in self.rows
            if (latency := _number(row, "mean-latency")) is not None
            and (value := _number(row, self.key)) is not None
            and (value * NEAR_BEST <= score if self.lower else value >= score * NEAR_BEST)
        ]
        latencies = [latency for latency, row in candidates if row is best]
        cost_text = _("%(time)s ms per query") % {"time": format_quantity(latencies[0], 2)} if latencies else ""
        if not cost_text and (latency_cell := best["mean-latency"]).mark:
            cost_text = _("%(time)s ms per query, doubtful because the machine was busy") % {"time": latency_cell.text}
        cost_text = cost_text or self._reported_cost()
        if cost_text and (size := _number(best, "index-bytes")):
            cost_text = _("%(cost)s, %(size)s MB index") % {"cost": cost_text, "size": format_quantity(size, 3)}
        figures = ((text, _number(best, key)) for key, text in _STATED_FIGURES.items())
        stated = [str(text) % {"value": f"{value:.3g}"} for text, value in figures if value is not None]
        costs = [", ".join(filter(None, [cost_text, *stated]))]
        if (price := _number(best, "cost")) is not None:
            costs.append(_("%(price)s USD per 1,000 queries, self-reported") % {"price": format_quantity(price, 3)})
        cost_text = "; ".join(filter(None, costs)) or str(_NOT_TIMED.get(best.entry.provenance, _("not timed")))
        if not candidates:
            return None, None, cost_text
        latency, cheapest = min(candidates, key=lambda pair: pair[0])
        facts = {"cost": cost_text, "name": _name(cheapest, Counter()), "time": format_quantity(latency, 2)}
        if cheapest is best:
            fastest = _("%(cost)s, the fastest of the %(count)d timed systems within 5%% of its score")
            return best, latency, fastest % {**facts, "count": len(candidates)} if len(candidates) > 1 else cost_text
        faster = _("%(cost)s; faster and within 5%% of its score: %(name)s, %(time)s ms")
        text = faster if latencies else _("%(cost)s; within 5%% of its score: %(name)s, %(time)s ms")
        return cheapest, latency, text % facts

    def _reported_cost(self) -> str:
        """Return reported latencies with their dataset on a benchmark, and whether the size of the model is unknown."""
        columns = [column for column in self.board.columns if column.key in _REPORTED_LATENCIES]
        values = ((_REPORTED_LATENCIES[column.key], _number(self.best, column.key)) for column in columns)
        latencies = _(" or ").join(
            str(text) % {"time": format_quantity(value, 2)} for text, value in values if value is not None
        )
        if not latencies:
            return ""
        dataset = columns[0].group.removeprefix(EFFICIENCY).removeprefix(", ")
        on_dataset = _("%(cost)s per query on %(dataset)s, on the paper’s hardware")
        text = on_dataset if dataset else _("%(cost)s per query, on the paper’s hardware")
        if self.best.entry.architecture != "lexical" and _number(self.best, "parameters") is None:
            text = _("%(cost)s; model size not reported") % {"cost": text}
        return text % {"cost": latencies, "dataset": dataset}


def _number(row: Row, key: str) -> float | None:
    return value if isinstance(value := row.value(key), (float, int)) else None


def _statement(board: Board, row: Row) -> Statement:
    return board.statements.for_entry(row.first_entry, board.measure)


def _name(row: Row, names: Counter[str]) -> str:
    """Return the system's name, with the configuration if several rows have it."""
    name = row.entry.system
    if names[name] > 1 and row.entry.configuration:
        name = f"{name} ({row.entry.configuration})"
    return shorten(name, MAX_NAME)


def _percents(*shares: float) -> list[str]:
    """Return shares as percentages, all of them with one decimal place if one is below 20%."""
    digits = 0 if min(map(abs, shares)) >= 0.1995 else 1
    return [f"{100 * share:.{digits}f}".replace("-", MINUS) for share in shares]
