"""Ranks of results on their datasets' boards, as a sentence, as a badge, and for pages that show no board.

The sentence is the same on a result's card, in lists, the API, notices, mail, and feeds. Ranks and differences are
computed from published scores. Certainty comes from `results.significance.statements`, which implements the protection
of hidden judgments. Withheld, withdrawn, and quarantined results have no standing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple

from django.contrib.humanize.templatetags.humanize import ordinal
from django.db.models import Q, QuerySet

from leaderboard.boards.wording import exceeds_bound, separation_text, significance_text, unjudged_text
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.text.numbers import DECIMALS, format_value, lead
from leaderboard.core.text.plain import for_xml
from leaderboard.models import Dataset, Entry, EntryQuerySet, System
from leaderboard.results.agreement import PublishedScore, published_scores
from leaderboard.results.board_rows.entry_rows import (
    CLOSED,
    REFERENCE,
    REPORTED,
    SCORED,
    STALE,
    UNRANKED,
    EntryRow,
    present_group,
    rank_values,
    ranking_group,
)
from leaderboard.results.board_rows.revisions import private_rows
from leaderboard.results.board_rows.rows import present_rows
from leaderboard.results.significance.statements import BoardStatements, Statement, statements

#: Visibilities of results with a standing: public ones, and ones that only their team sees.
_STATES = (Entry.Visibility.PUBLIC, Entry.Visibility.PRIVATE, Entry.Visibility.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class Standing:
    """A result's rank by its dataset's primary measure.

    `rank` is None off the board and on earlier judgments; `of` is the number of results that it is ranked among.
    `others_tied` is the number of other results not separable from the best. `slug` is the system's, empty off the
    board. `against` has slug and name of the leader, or of the baseline if this result leads.
    """

    dataset: str
    dataset_slug: str
    measure: str
    score: float
    delta: float | None
    baseline: str
    is_baseline: bool
    statement: Statement
    rank: int | None = None
    of: int = 0
    is_closed_api: bool = False
    others_tied: int = 0
    slug: str = ""
    against: tuple[str, str] = ("", "")
    baseline_slug: str = ""
    published: PublishedScore | None = None
    #: System with the best score ranked below this result; empty if there is none.
    next_below: str = ""
    #: Effect of the baseline's unjudged documents on the lead; empty if there is no lead or it is unknown.
    unjudged: str = ""

    @property
    def rank_range(self) -> tuple[int, int] | None:
        """First and last rank that the tests leave open; None if unknown."""
        return self.statement.ranks if self.rank is not None else None

    @property
    def score_text(self) -> str:
        return f"{self.measure} {format_value(self.score, DECIMALS)}"

    @property
    def place(self) -> str:
        """Rank such as `2nd of 11`; empty without a rank."""
        if self.rank is None:
            return ""
        return f"{ordinal(self.rank)} of {self.of}{' closed APIs' if self.is_closed_api else ''}"

    @property
    def certainty(self) -> str:
        """Significance of the difference, such as `significant: p = 0.037`; empty if unknown."""
        return "" if self.delta is None else significance_text(self.statement, self.delta, self.measure)

    @property
    def significance(self) -> str:
        """Significance of the difference without p-values, such as `not significant`; empty if unknown."""
        return "" if self.delta is None else significance_text(self.statement, self.delta, self.measure, brief=True)

    @property
    def difference(self) -> str:
        """Difference such as `+0.021 over BM25 (significant: p = 0.037)`; empty without a baseline."""
        if self.is_baseline:
            return "the baseline"
        if self.delta is None:
            return ""
        return lead(self.delta, self.baseline) + (f" ({self.certainty})" if self.certainty else "")

    @property
    def sentence(self) -> str:
        """Sentence such as `2nd of 11 on StdlibSearch, +0.021 over BM25 (…), rank range 2–4`, without a full stop."""
        place_on_board = f"{self.place or 'unranked'} on {self.dataset}"
        separation = separation_text(self.rank, self.statement, self.others_tied)
        return ", ".join(filter(None, [place_on_board, self.difference, separation]))

    @property
    def board_path(self) -> str:
        """URL of the board, with the system's row pinned if it has one."""
        return f"/datasets/{self.dataset_slug}/" + (f"?pin={self.slug}" if self.slug else "")

    @property
    def compare_path(self) -> str:
        """URL of the comparison with `against`, or an empty string.

        The baseline is the reference if it is one of the two.
        """
        if not self.against[0]:
            return ""
        first, second = (self.slug, self.against[0]) if self.is_baseline else (self.against[0], self.slug)
        return f"/compare/?system={first}&system={second}&dataset={self.dataset_slug}"

    @property
    def baseline_path(self) -> str:
        """URL of the comparison with the baseline; empty if it is this system, or `against`."""
        if not self.slug or self.baseline_slug in ("", self.slug, self.against[0]):
            return ""
        return f"/compare/?system={self.baseline_slug}&system={self.slug}&dataset={self.dataset_slug}"

    @property
    def badge_path(self) -> str:
        return f"/systems/{self.slug}/badge.svg?dataset={self.dataset_slug}"


def standings(entries: Iterable[Entry]) -> dict[int, Standing]:
    """Return the standings of entries by id. Their datasets must be loaded.

    Withheld, withdrawn, and quarantined entries, and entries without the primary measure, are omitted. Takes about ten
    database queries in total.
    """
    visible_entries = [
        entry for entry in entries if entry.visibility in _STATES and entry.dataset.primary_measure in entry.scores
    ]
    datasets = {entry.dataset_id for entry in visible_entries}
    boards, statements_by_dataset = (ranked_boards(datasets), statements(datasets)) if datasets else ({}, {})
    private_systems = {entry.system_id for entry in visible_entries if entry.visibility == Entry.Visibility.PRIVATE}
    teams = set(System.objects.filter(pk__in=private_systems).values_list("team_id", flat=True))
    own_rows = private_rows(datasets, teams)
    return {
        entry.pk: _standing(entry, boards[pk], statements_by_dataset[pk], own_rows.get(pk, ()))
        for entry in visible_entries
        for pk in [entry.dataset_id]
    }


def _standing(
    entry: Entry, board: RankedBoard, board_statements: BoardStatements, own_rows: Sequence[EntryRow]
) -> Standing:
    """Return an entry's standing, without rank and opponent if it is not among the board's public entries.

    The opponent is the best result, or the baseline if the best result is of the same system. `own_rows` are private
    rows of the reader's teams.
    """
    measure, name = entry.dataset.primary_measure, entry.dataset.name
    row = next((candidate for candidate in board.entries if candidate.pk == entry.pk), None)
    baseline = board.baseline(entry, measure)
    score, statement = entry.scores[measure], board_statements.for_entry(entry.pk, measure)
    is_safe = exceeds_bound(measure, score, baseline.scores.get) if statement.better and baseline else None
    standing = Standing(
        dataset=name, dataset_slug=entry.dataset.slug, measure=measure, score=score, statement=statement,
        delta=numbers.difference(score, baseline.scores[measure]) if baseline else None, is_baseline=entry.is_baseline,
        baseline=baseline_label(baseline.system, name) if baseline else "",
        baseline_slug=baseline.slug if baseline else "",
        unjudged=unjudged_text(is_safe, baseline.system) if is_safe is not None and baseline else "",
        published=board.published(measure, own_rows).get(entry.pk),
    )  # fmt: skip
    if row is None:
        return standing
    board_rank = board.standing(row, measure)
    others = [(other.slug, other.system) for other in (board_rank.best, baseline) if other and other.slug != row.slug]
    return replace(
        standing, slug=row.slug, rank=board_rank.rank, next_below=board_rank.next_below, of=board_rank.peer_count,
        is_closed_api=board_rank.ranked_in == CLOSED, against=others[0] if others else ("", ""),
        others_tied=len(board_statements.tied_with_best(measure) - {entry.pk}),
    )  # fmt: skip


class BoardRank(NamedTuple):
    """An entry's rank by one measure; `rank` is None if it is stale, `peer_count` is the number of results of its kind.

    `best` is the best of them, the entry itself if there is no other. `next_below` names the best one ranked lower.
    """

    ranked_in: str
    rank: int | None
    peer_count: int
    best: EntryRow
    next_below: str


@dataclass(frozen=True, slots=True)
class RankedBoard:
    """The public entries of a dataset's board by date of publication, and the group of its current results."""

    current_group: str
    entries: Sequence[EntryRow]

    def kind(self, entry: EntryRow) -> str:
        """Return the kind of results among which an entry is ranked."""
        return ranking_group(entry, self.current_group)

    def published(self, measure: str, own_rows: Sequence[EntryRow] = ()) -> dict[int, PublishedScore]:
        """Return the published scores of current results by entry id, including private `own_rows` of a team."""
        return published_scores([*self.entries, *own_rows], self.current_group, measure)

    def baseline(self, entry: EntryRow | Entry, measure: str) -> EntryRow | None:
        """Return the baseline of the entry's comparison group with a score for the measure, or None."""
        baselines = (
            candidate
            for candidate in self.entries
            if candidate.is_baseline and candidate.comparison_group == entry.comparison_group
        )
        return next((candidate for candidate in baselines if measure in candidate.scores), None)

    def standing(self, entry: EntryRow, measure: str) -> BoardRank:
        """Return the entry's rank by a measure that it has.

        Reported and stale entries are compared within their own groups; stale ones have no rank.
        """
        kind, lower = self.kind(entry), better(measure) == "lower"
        peers = [
            peer
            for peer in self.entries
            if measure in peer.scores
            and self.kind(peer) == kind
            and (kind not in (*UNRANKED, REPORTED) or peer.reported_group == entry.reported_group)
        ] or [entry]
        value = entry.scores[measure]
        rank = rank_values([value, *(peer.scores[measure] for peer in peers)], lower_is_better=lower)[value]
        ordered = sorted(peers, key=lambda peer: peer.scores[measure], reverse=not lower)
        next_below = next((peer.system for peer in ordered[rank:] if peer.scores[measure] != value), "")
        return BoardRank(kind, None if kind in UNRANKED else rank, len(peers), ordered[0], next_below)


def differing_entries() -> QuerySet[Entry]:
    """Return the public results that differ from the published score of their model in the primary measure."""
    reported = EntryQuerySet(Entry).public().filter(provenance=Entry.Provenance.REPORTED)
    measures = dict(reported.exclude(system__model_url="").values_list("dataset_id", "dataset__primary_measure"))
    boards = ranked_boards(measures)
    scores = (pair for pk, measure in measures.items() for pair in boards[pk].published(measure).items())
    return Entry.objects.filter(pk__in=[entry for entry, score in scores if score.differs])


def ranked_boards(dataset_ids: Collection[int]) -> dict[int, RankedBoard]:
    """Return the ranked entries of these datasets' boards by dataset id. Three database queries in total."""
    datasets = Dataset.objects.filter(pk__in=dataset_ids)
    rows, boards = present_rows(dataset_ids), {}
    for pk, version, qrels in datasets.values_list("pk", "current_version_id", "current_qrels_id"):
        entries = [row for row in rows[pk].entries if row.is_public]
        groups = [(row.comparison_group, row.is_baseline) for row in entries]
        boards[pk] = RankedBoard(present_group(version, qrels, groups), entries)
    return boards


#: Widths of characters in thousandths of the font size, similar to Verdana's; `textLength` corrects other
#: fonts.
_WIDTHS: Mapping[str, int] = {
    **dict.fromkeys("ijlI'|", 300),
    **dict.fromkeys(" frt/.,·:;()-", 400),
    **dict.fromkeys("csvxyzkJ", 560),
    **dict.fromkeys("CDGHNOQU", 750),
    **dict.fromkeys("ABEKPRSVXZ&", 690),
    **dict.fromkeys("mwMW@%+=#<>~", 900),
}
_OTHER, _CJK, _SIZE, _PADDING, _HEIGHT = 630, 1000, 11, 6, 20

#: Background colors on which white has a contrast of at least 4.5: of the label, and of the value by
#: shields.io name.
_LABEL_COLOR = "#4a4d52"
_MESSAGE_COLORS = {"blue": "#1c4f9c", "grey": "#62656b"}


class Badge(NamedTuple):
    """Texts of a badge; `color` is a name that shields.io knows and carries no information of its own."""

    label: str
    message: str
    color: str


def system_badge(system_slug: str, dataset_slug: str, measure: str) -> Badge | None:
    """Return the badge of a system's best result on a dataset's board, with its score, rank, and range of ranks.

    The default dataset is the first by name with a result of the system, and the default measure the primary one.
    Returns None for an unknown system, dataset, or measure. Takes about ten database queries.
    """
    entries = Entry.objects.filter(visibility__in=Entry.SEEN).exclude(dataset__state="preparing")
    system = System.objects.filter(slug=system_slug, pk__in=entries.values("system_id")).first()
    if system is None:
        return None
    datasets = Dataset.objects.listed().order_by("name")
    of_system = Q(entries__system=system, entries__visibility__in=Entry.SEEN)
    dataset = datasets.filter(Q(slug=dataset_slug) if dataset_slug else of_system).first()
    if dataset is None or (measure and measure not in (dataset.measures or [dataset.primary_measure])):
        return None
    measure = measure or dataset.primary_measure
    board = ranked_boards([dataset.pk])[dataset.pk]
    label = f"{measure} on {dataset.name}"
    sign = -1 if better(measure) == "lower" else 1
    system_entries = [entry for entry in board.entries if entry.system_id == system.pk and measure in entry.scores]
    if not system_entries:
        quarantined_entries = system.entries.filter(dataset=dataset, visibility=Entry.Visibility.QUARANTINED)
        return Badge(label, "quarantined" if quarantined_entries.exists() else "no result", "grey")
    # Current judgments come first, then reported results, then stale ones.
    kinds = (STALE, REFERENCE, REPORTED, CLOSED, SCORED)
    best_entry = max(system_entries, key=lambda entry: (kinds.index(board.kind(entry)), sign * entry.scores[measure]))
    value, standing = best_entry.scores[measure], board.standing(best_entry, measure)
    if standing.rank is None:
        reason = best_entry.reference_name if standing.ranked_in == REFERENCE else "earlier judgments"
        return Badge(label, f"{value:.3f}, {reason}", "grey")
    kind = "" if standing.ranked_in == SCORED else f" {standing.ranked_in}"
    low, high = statements([dataset.pk])[dataset.pk].for_entry(best_entry.pk, measure).ranks or (0, 0)
    ranks = f"{standing.rank} (range {low}–{high})" if low < high else standing.rank
    return Badge(label, f"{value:.3f} · {ranks} of {standing.peer_count}{kind}", "blue")


def text_width(text: str) -> int:
    """Return the width of a text in pixels; East Asian characters are as wide as they are high."""
    return round(sum(_WIDTHS.get(sign, _CJK if ord(sign) > 0x2E7F else _OTHER) for sign in text) * _SIZE / 1000)


def as_svg(badge: Badge) -> str:
    """Return the badge as SVG with a title; texts keep their widths in any font."""
    badge = Badge(for_xml(badge.label), for_xml(badge.message), badge.color)
    label_text_width, message_text_width = text_width(badge.label), text_width(badge.message)
    label_width, message_width = label_text_width + 2 * _PADDING, message_text_width + 2 * _PADDING
    name = escape(f"{badge.label}: {badge.message}")
    attributes = f'y="14" font-family="Verdana,DejaVu Sans,sans-serif" font-size="{_SIZE}" fill="#fff"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{label_width + message_width}" height="{_HEIGHT}" role="img" '
        f'aria-labelledby="name"><title id="name">{name}</title>'
        f'<rect width="{label_width + message_width}" height="{_HEIGHT}" rx="3" fill="{_LABEL_COLOR}"/>'
        f'<path d="M{label_width} 0h{message_width - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{message_width - 3}z" '
        f'fill="{_MESSAGE_COLORS[badge.color]}"/>'
        f'<text x="{_PADDING}" {attributes} textLength="{label_text_width}">{escape(badge.label)}</text>'
        f'<text x="{label_width + _PADDING}" {attributes} textLength="{message_text_width}">{escape(badge.message)}'
        "</text></svg>"
    )


def as_shields(badge: Badge) -> dict[str, Any]:
    return {"schemaVersion": 1, "label": badge.label, "message": badge.message, "color": badge.color}
