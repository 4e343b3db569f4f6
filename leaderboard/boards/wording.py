"""Short names, and statements on certainty for boards, system pages, comparisons, submissions, notices, and exports.

*Significant* refers to the row's test against the baseline, also after correction for multiple comparisons. *Not
separable from the best* refers to the tests of all pairs on the board.
"""

from collections.abc import Callable

from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from evaluation.measures.registry import upper_bound_name
from evaluation.statistics.randomisation import CORRECTION
from leaderboard.boards.columns.significance import format_p_value
from leaderboard.boards.model import Row
from leaderboard.core.text.numbers import direction
from leaderboard.results.mteb import short_revision
from leaderboard.results.significance.statements import BoardStatements, Statement


def shorten(text: str, length: int) -> str:
    """Return the text, or if it is longer than `length` characters, its beginning with an ellipsis."""
    return text if len(text) <= length else text[: length - 1].rstrip() + "…"


def exceeds_bound(measure: str, score: float, baseline_value: Callable[[str], float | None]) -> bool | None:
    """Return whether a score exceeds the baseline's even if all unjudged documents of the baseline are relevant.

    `baseline_value` returns the value of a measure. The result is None without unjudged documents or a bound.
    """
    value, bound = (baseline_value(name) if name else None for name in (measure, upper_bound_name(measure)))
    return None if value is None or bound is None or bound <= value else score > bound


def unjudged_text(is_safe: bool, baseline: str) -> str:
    """Return whether unjudged documents could reverse the lead; see `exceeds_bound`."""
    text = _("cannot reverse the lead over %(name)s") if is_safe else _("could reverse the lead over %(name)s")
    return text % {"name": baseline}


def ranking_source(row: Row) -> str:
    """Return the source of a reported row's ranking, with the revision of the dataset if it is known."""
    source = str(row.value("by") or "")
    revision = row.ranking.removeprefix(f"reported:{row.entry.source_key}").removeprefix(":")
    if not revision:
        return source
    return _("%(source)s, dataset revision %(revision)s") % {"source": source, "revision": short_revision(revision)}


def p_text(p: float) -> str:
    """Return `= 0.037`, `< 0.001`, or `just below 0.05` if three decimals would hide that."""
    text = format_p_value(p)
    return f"= {text}" if text[0].isdecimal() else text.replace("<", "< ")


def p_values_text(statement: Statement) -> str:
    """Return the known p-values: `p = 0.037, Holm-corrected p = 0.110`, or one if both have the same text.

    A single comparison needs no correction. The text says if a difference is significant after correction only in the
    tests of all pairs.
    """
    if statement.p is None:
        return ""
    facts = {"p": p_text(statement.p), "correction": CORRECTION, "corrected": p_text(statement.p_corrected or 0.0)}
    text = _("p %(p)s, %(correction)s-corrected p %(corrected)s")
    if statement.p_corrected is None or statement.comparisons == 1:
        text = _("p %(p)s")
    elif facts["p"] == facts["corrected"]:
        text = _("p %(p)s before and after %(correction)s correction")
    if statement.is_kept_by_pairs:
        text = _("%(text)s; Westfall–Young over all pairs separates it from all others") % {"text": text}
    return "; ".join(filter(None, [text % facts, least_p_text(statement)]))


def least_p_text(statement: Statement) -> str:
    """Return the smallest corrected p-value that tests over so few datasets or queries can have; empty if it is low."""
    text, least = _("the smallest possible with %s") % statement.sample, p_text(statement.least_p)
    text = text if least == p_text(statement.p_corrected or 0.0) else f"{text}: p {least}"
    return text if statement.least_p and not statement.is_kept_by_pairs else ""


def significance_word(statement: Statement, *, is_baseline_tied: bool = False) -> str:
    """Return whether the difference from the baseline is significant, and whether only in some of the tests.

    `is_baseline_tied` tells whether the tests of all pairs do not separate the two.
    """
    if statement.better is None:
        return _("not tested")
    if not (statement.better or statement.worse):
        return _("not significant")
    if is_baseline_tied:
        return _("better when tested alone")
    if statement.is_lost_by_correction:
        return _("significant only before correction")
    return _("significant in the tests of all pairs") if statement.is_kept_by_pairs else _("significant")


def significance_text(statement: Statement, delta: float | None, measure: str, *, brief: bool = False) -> str:
    """Describe whether a difference from the baseline is significant, with its p-values unless `brief`.

    The text is empty if the significance is unknown. `delta` is the difference. Hidden judgments allow only a one-sided
    comparison, so worse scores are not tested.
    """
    if statement.better is None:
        return ""
    if statement.p is None and delta and direction(delta, measure) == "down":
        return _("lower; not tested on hidden judgments") if delta < 0 else _("higher; not tested on hidden judgments")
    return ": ".join(filter(None, [significance_word(statement), "" if brief else p_values_text(statement)]))


def pairs_text(board: BoardStatements, measure: str) -> str:
    """Return the scope of the tests of all pairs: `all 153 pairs tested`, or the threshold on hidden judgments."""
    pairs = board.pair_count(measure)
    if board.published is None:
        return ngettext("%(pairs)d pair tested", "all %(pairs)d pairs tested", pairs) % {"pairs": pairs}
    text = ngettext("threshold %(within)s for %(pairs)d pair", "threshold %(within)s for all %(pairs)d pairs", pairs)
    return text % {"within": f"{board.published.tied_within:.3f}", "pairs": pairs}


def separation_text(rank: int | None, statement: Statement, tied_count: int) -> str:
    """Return the ranks that the tests of all pairs leave open, such as `rank range 2–4`; empty without a rank.

    Hidden judgments give no ranges. The text then says that the result is not separable from the best or, for the best
    result, from how many others (`tied_count`) it is not separable.
    """
    if rank is None:
        return ""
    if statement.ranks is not None:
        low, high = statement.ranks
        return f"rank range {low}–{high}" if low < high else "separable from all others"
    if statement.tied_with_best is None or rank > 1:
        return "not separable from the best" if statement.tied_with_best else ""
    if not tied_count:
        return "separable from all others"
    return f"not separable from {tied_count} other{'s' if tied_count > 1 else ''}"
