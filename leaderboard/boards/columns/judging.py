"""How much of a board is the judging: what scores could come to, and what they owe to their own team's finds."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from django.utils.translation import gettext_noop as _

from evaluation.judgements.merge import agreement_sentence
from evaluation.measures.registry import upper_bound_of
from evaluation.statistics.comparison import kendall_tau
from leaderboard.boards.model import JUDGED_SHARE, Column, DatasetFacts, Row
from leaderboard.core.measures import better
from leaderboard.results.board_rows.entry_rows import SCORED
from leaderboard.results.significance.types import MeasureCertainty

LEFT_OUT = "own-team-left-out"
#: A dataset with fewer judged relevant documents for a topic has sparse labels: much that is relevant is unjudged.
SPARSE = 2

LEFT_OUT_COLUMN = Column(
    LEFT_OUT,
    _("Own team left out"),
    JUDGED_SHARE,
    "score",
    "higher",
    note=_("the score without the documents that are judged only because this team’s runs found them"),
    cell=lambda line: None if line.certainty is None else line.certainty.without_own,
)


def judging_notes(rows: Sequence[Row], measure: str, found: MeasureCertainty | None) -> Iterator[str]:
    """What the bounds of all rows tell of the order, in words."""
    scored = [row for row in rows if row.ranked_in == SCORED and row.value(measure) is not None]
    orders = [
        (each, [(row.value(measure), row.value(each)) for row in scored if row.value(each) is not None])
        for each in (upper_bound_of(measure) or "", LEFT_OUT)
    ]
    for key, pairs in orders:
        tau = kendall_tau(*zip(*pairs, strict=True)) if len(pairs) > 1 else None
        order = (
            "" if tau is None else f" Ranked by it, Kendall’s τ with this order is {tau:.2f} (1: the same)."
        )
        if key == LEFT_OUT and pairs:
            sign = -1 if better(measure) == "lower" else 1
            most = max(sign * (float(score or 0) - float(other or 0)) for score, other in pairs)
            yield (
                "Own team left out: the score where documents count as unjudged that only this team’s runs brought "
                f"into the judged pool. No score loses more than {max(0.0, most):.3f}.{order}"
            )
        elif pairs:
            yield (
                f"Upper bound: the most that {measure} could be, whatever grades the unjudged documents would get; the "
                f"score itself counts them as not relevant.{order}"
            )
    if found is not None and found.pool_gone:
        yield f"Own team left out: not known, because {found.pool_gone}."


def describe_judges(judged_by: Mapping[str, Any], *, hidden: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Who made judgements, from what `Qrels.judged_by` says, with the share of each, and how far they agree, in words.

    Nothing where no judge was ever named. Of hidden judgements how many a judge made, and agreed on, is not told.
    """
    judges = judged_by.get("judges", ())
    total = sum(each["judgements"] for each in judges)
    if not any(each["kind"] for each in judges):
        return (), ()
    if hidden:
        return tuple(each["called"] for each in judges), ()
    shares = (f"{each['called']} {100 * each['judgements'] / total:.0f}%" for each in judges)
    return tuple(shares), tuple(map(agreement_sentence, judged_by.get("agreement", ())))


def notes_on_judges(facts: DatasetFacts) -> Iterator[str]:
    """Who judged, whether they agree, and whether much that is relevant must be unjudged."""
    if facts.judges:
        yield " ".join([f"Judged by: {', '.join(facts.judges)}.", *facts.agreement])
    if facts.relevant_per_query is not None and facts.relevant_per_query < SPARSE:
        yield (
            f"Sparse labels: {facts.relevant_per_query:.1f} judged relevant documents per query. Others are relevant, "
            "too, and count as not relevant: systems that find these are marked down."
        )
