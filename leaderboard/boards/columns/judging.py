"""Effects of the judgments on a board: bounds of scores, scores without a team's own pooled documents, and judges."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from django.utils.translation import gettext_noop as _

from evaluation.judgements.merge import agreement_sentence
from evaluation.measures.registry import upper_bound_name
from evaluation.statistics.comparison import kendall_tau
from leaderboard.boards.model import JUDGED_SHARE, Column, DatasetFacts, Row
from leaderboard.core.measures import better
from leaderboard.core.text.bibtex import authors_and_year
from leaderboard.models import short_citation
from leaderboard.results.board_rows.entry_rows import SCORED
from leaderboard.results.significance.types import MeasureCertainty

LEFT_OUT = "own-team-left-out"
#: Judged relevant documents per topic below which labels are sparse, so that many relevant documents are
#: unjudged.
SPARSE = 2

LEFT_OUT_COLUMN = Column(
    LEFT_OUT,
    _("Own team left out"),
    JUDGED_SHARE,
    "score",
    "higher",
    note=_("the score without documents that were judged only because this team’s runs retrieved them"),
    cell=lambda line: None if line.certainty is None else line.certainty.without_own,
)


def judging_notes(rows: Sequence[Row], measure: str, certainty: MeasureCertainty | None) -> Iterator[str]:
    """Yield notes on the upper bound and on the score without the own team's documents.

    Each tells how similar its order of the scored rows is to that of `measure`. If the second score is unknown, a note
    tells why.
    """
    scored_rows = [row for row in rows if row.ranked_in == SCORED and row.value(measure) is not None]
    orders = [
        (
            column_key,
            [(row.value(measure), row.value(column_key)) for row in scored_rows if row.value(column_key) is not None],
        )
        for column_key in (upper_bound_name(measure) or "", LEFT_OUT)
    ]
    for key, pairs in orders:
        tau = kendall_tau(*zip(*pairs, strict=True)) if len(pairs) > 1 else None
        order = "" if tau is None else f" Ranked by it, Kendall’s τ with this order is {tau:.2f} (1: the same)."
        if key == LEFT_OUT and pairs:
            sign = -1 if better(measure) == "lower" else 1
            max_loss = max(sign * (float(score or 0) - float(reduced_score or 0)) for score, reduced_score in pairs)
            yield (
                "Own team left out: the score if documents that only this team’s runs added to the judged pool count "
                f"as unjudged. No score loses more than {max(0.0, max_loss):.3f}.{order}"
            )
        elif pairs:
            yield (
                f"Upper bound: the maximum of {measure} for any grades of the unjudged documents; the "
                f"score itself counts them as not relevant.{order}"
            )
    if certainty is not None and certainty.pool_gone:
        yield f"Own team left out: unknown, because {certainty.pool_gone}."


def describe_judges(judged_by: Mapping[str, Any], *, hidden: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the judges with their shares of the judgments, and sentences on their agreement.

    `judged_by` is the field of `Qrels`. Both are empty if no judge was ever named. For hidden judgments, only the
    names of the judges are returned. An import may have `stated` them. The sentences include the judges of answers.
    """
    labels = tuple(_describe_labels(judged_by.get("labels", {}), hidden=hidden))
    if stated := judged_by.get("stated"):
        return (stated,), labels
    judges = judged_by.get("judges", ())
    total = sum(judge["judgements"] for judge in judges)
    if not any(judge["kind"] for judge in judges):
        return (), labels
    if hidden:
        return tuple(judge["called"] for judge in judges), labels
    shares = (f"{judge['called']} {100 * judge['judgements'] / total:.0f}%" for judge in judges)
    return tuple(shares), (*map(agreement_sentence, judged_by.get("agreement", ())), *labels)


def _describe_labels(labels: Mapping[str, Any], *, hidden: bool) -> Iterator[str]:
    """Yield sentences on the judges of answers, and if judgments are open, on their numbers and agreement."""
    names = []
    for judge in labels.get("judges", ()):
        prompt = f"prompt {judge['prompt']}" if judge.get("prompt") else ""
        facts = [judge.get("model") or judge["kind"], prompt, "" if hidden else f"{judge['labels']:,} labels"]
        names.append(f"{judge['name']} ({', '.join(filter(None, facts))})")
    if names:
        yield f"Answers labeled by {', '.join(names)}."
    if not hidden:
        yield from map(agreement_sentence, labels.get("agreement", ()))


def collection_source(citation: str, homepage: str) -> str:
    """Return the short citation of a collection, or else the host of its homepage; empty if both are unknown."""
    authors, year = authors_and_year(citation)
    return short_citation(authors, int(year)) if authors and year.isdecimal() else urlsplit(homepage).hostname or ""


def notes_on_judges(facts: DatasetFacts) -> Iterator[str]:
    """Yield notes on the judges, their agreement, and sparse labels."""
    if facts.judges or facts.agreement:
        judges = [f"Judged by: {', '.join(facts.judges)}."] if facts.judges else []
        yield " ".join([*judges, *facts.agreement])
    if facts.relevant_per_query is not None and facts.relevant_per_query < SPARSE:
        yield (
            f"Sparse labels: {facts.relevant_per_query:.1f} judged relevant documents per query. Unjudged relevant "
            "documents count as not relevant, so systems that retrieve them are penalized."
        )
