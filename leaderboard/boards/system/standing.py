"""Places of results on their datasets' boards: in one sentence, as a badge, and for pages that show no board.

The sentence is the same on a result's card, in lists, the API, notices, mail and feeds. Ranks and differences are those
of published scores. Certainty comes from `results.significance.statements`, which knows how the judgements are
protected. Nothing is said of a result that is held, withdrawn or in quarantine.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, NamedTuple

from django.contrib.humanize.templatetags.humanize import ordinal

from leaderboard.boards.wording import separation_text, significance_text
from leaderboard.core.measures import better
from leaderboard.core.text import numbers
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.text.numbers import DECIMALS, format_value, lead
from leaderboard.core.text.plain import for_xml
from leaderboard.models import Dataset, Entry, System
from leaderboard.results.board_rows.entry_rows import (
    CLOSED,
    REPORTED,
    SCORED,
    STALE,
    UNRANKED,
    EntryRow,
    present_group,
    rank_values,
    ranked_in,
)
from leaderboard.results.board_rows.rows import present_rows
from leaderboard.results.significance.statements import BoardStatements, Statement, statements

#: Whose place or difference is told: what boards show, and to its team what is private or behind a better one.
_TOLD = (Entry.Visibility.PUBLIC, Entry.Visibility.PRIVATE, Entry.Visibility.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class Standing:
    """A result's place by its dataset's primary measure.

    `rank` is None off the board and on earlier judgements; `of` counts those that it is ranked among. `others_tied`
    counts the others that may be the best. `slug` is the system's, empty off the board. `against` is the slug and the
    name of the leader, of the baseline where this leads.
    """

    dataset: str
    dataset_slug: str
    measure: str
    score: float
    delta: float | None
    baseline: str
    is_baseline: bool
    said: Statement
    rank: int | None = None
    of: int = 0
    closed: bool = False
    others_tied: int = 0
    slug: str = ""
    against: tuple[str, str] = ("", "")

    @property
    def ties(self) -> tuple[int, int] | None:
        """The first and the last rank that tests leave open; None where that is not known."""
        return self.said.ranks if self.rank is not None else None

    @property
    def score_text(self) -> str:
        """`nDCG@10 0.314`."""
        return f"{self.measure} {format_value(self.score, DECIMALS)}"

    @property
    def place(self) -> str:
        """`2nd of 11`; empty without a rank."""
        if self.rank is None:
            return ""
        return f"{ordinal(self.rank)} of {self.of}{' closed APIs' if self.closed else ''}"

    @property
    def difference(self) -> str:
        """`+0.021 over BM25 (significant: p = 0.037 tested alone)`; empty where there is nothing to compare with."""
        if self.is_baseline:
            return "the baseline"
        if self.delta is None:
            return ""
        certainty = significance_text(self.said, self.delta, self.measure)
        return lead(self.delta, self.baseline) + (f" ({certainty})" if certainty else "")

    @property
    def sentence(self) -> str:
        """`2nd of 11 on StdlibSearch, +0.021 over BM25 (not significant: …), rank range 2–4`, without a full stop."""
        where = f"{self.place or 'unranked'} on {self.dataset}"
        separation = separation_text(self.rank, self.said, self.others_tied)
        return ", ".join(filter(None, [where, self.difference, separation]))

    @property
    def board_path(self) -> str:
        """The board, with the system's row marked where it has one."""
        return f"/datasets/{self.dataset_slug}/" + (f"?pin={self.slug}" if self.slug else "")

    @property
    def compare_path(self) -> str:
        """The comparison with `against`; empty where there is nobody."""
        if not self.against[0]:
            return ""
        return f"/compare/?system={self.slug}&system={self.against[0]}&dataset={self.dataset_slug}"

    @property
    def badge_path(self) -> str:
        """The badge as a picture."""
        return f"/systems/{self.slug}/badge.svg?dataset={self.dataset_slug}"


def standings(entries: Iterable[Entry]) -> dict[int, Standing]:
    """What is said of the entries, by id, each with its dataset at hand; some ten queries, however many there are."""
    wanted = [
        entry
        for entry in entries
        if entry.visibility in _TOLD and entry.dataset.primary_measure in entry.scores
    ]
    datasets = {entry.dataset_id for entry in wanted}
    boards, said = (ranked_boards(datasets), statements(datasets)) if datasets else ({}, {})
    return {entry.pk: _standing(entry, boards[entry.dataset_id], said[entry.dataset_id]) for entry in wanted}


def _standing(entry: Entry, board: RankedBoard, said: BoardStatements) -> Standing:
    measure, name = entry.dataset.primary_measure, entry.dataset.name
    row = next((each for each in board.entries if each.pk == entry.pk), None)
    baseline = board.baseline(entry, measure)
    score = entry.scores[measure]
    told = Standing(
        dataset=name,
        dataset_slug=entry.dataset.slug,
        measure=measure,
        score=score,
        delta=numbers.difference(score, baseline.scores[measure]) if baseline else None,
        baseline=baseline_label(baseline.system, name) if baseline else "",
        is_baseline=entry.is_baseline,
        said=said.of(entry.pk, measure),
    )
    if row is None:
        return told
    place = board.standing(row, measure)
    others = [each for each in (place.best, baseline) if each is not None and each.slug != row.slug]
    return replace(
        told,
        slug=row.slug,
        rank=place.rank,
        of=place.of,
        closed=place.ranked_in == CLOSED,
        others_tied=len(said.tied_with_best(measure) - {entry.pk}),
        against=(others[0].slug, others[0].system) if others else ("", ""),
    )


class BoardRank(NamedTuple):
    """An entry's place by one measure: `rank` is None where it is stale, `of` counts those of its kind.

    `best` is the best of them, itself where there is no other.
    """

    ranked_in: str
    rank: int | None
    of: int
    best: EntryRow


@dataclass(frozen=True, slots=True)
class RankedBoard:
    """The public entries of a dataset's board, by date of publication, and the group of its present results."""

    present: str
    entries: Sequence[EntryRow]

    def kind(self, entry: EntryRow) -> str:
        """Whom it is ranked among, as on the board."""
        return ranked_in(
            entry.provenance, entry.comparison_group, self.present, closed_api=bool(entry.closed_api)
        )

    def baseline(self, entry: EntryRow | Entry, measure: str) -> EntryRow | None:
        """What its differences are taken to: the baseline of its own source, version and judgements."""
        found = (
            other
            for other in self.entries
            if other.is_baseline and other.comparison_group == entry.comparison_group
        )
        return next((other for other in found if measure in other.scores), None)

    def standing(self, entry: EntryRow, measure: str) -> BoardRank:
        """Its place by a measure that it has. A stale one is compared within its own group only, and has no rank."""
        kind, lower = self.kind(entry), better(measure) == "lower"
        peers = [
            other
            for other in self.entries
            if measure in other.scores
            and self.kind(other) == kind
            and (kind not in UNRANKED or other.comparison_group == entry.comparison_group)
        ] or [entry]
        value = entry.scores[measure]
        rank = rank_values([value, *(other.scores[measure] for other in peers)], lower_is_better=lower)[value]
        best = (min if lower else max)(peers, key=lambda other: other.scores[measure])
        return BoardRank(kind, None if kind in UNRANKED else rank, len(peers), best)


def ranked_boards(dataset_ids: Collection[int]) -> dict[int, RankedBoard]:
    """What each of these datasets' boards ranks, by the dataset's id. Three queries, however many there are."""
    datasets = Dataset.objects.filter(pk__in=dataset_ids)
    rows, found = present_rows(dataset_ids), {}
    for pk, version, qrels in datasets.values_list("pk", "current_version_id", "current_qrels_id"):
        entries = [row for row in rows[pk].entries if row.is_public]
        groups = [(row.comparison_group, row.is_baseline) for row in entries]
        found[pk] = RankedBoard(present_group(version, qrels, groups), entries)
    return found


#: Widths of signs in thousandths of the size, near to Verdana's; `textLength` makes up for what a font differs by.
_WIDTHS: Mapping[str, int] = {
    **dict.fromkeys("ijlI'|", 300),
    **dict.fromkeys(" frt/.,·:;()-", 400),
    **dict.fromkeys("csvxyzkJ", 560),
    **dict.fromkeys("CDGHNOQU", 750),
    **dict.fromkeys("ABEKPRSVXZ&", 690),
    **dict.fromkeys("mwMW@%+=#<>~", 900),
}
_OTHER, _WIDE, _SIZE, _PADDING, _HEIGHT = 630, 1000, 11, 6, 20

#: Grounds on which white has a contrast of 4.5 and more: the name, and the value as shields.io calls it.
_NAME_GROUND = "#4a4d52"
_GROUNDS = {"blue": "#1c4f9c", "grey": "#62656b"}


class Badge(NamedTuple):
    """`color` is a name that shields.io knows; it says nothing that the words do not."""

    label: str
    message: str
    color: str


def badge_of(system_slug: str, dataset_slug: str, measure: str) -> Badge | None:
    """The system's place on a dataset's board, the first by name where none is named. Five queries at most.

    None where there is no such system with anything public, no such dataset, or no such measure of it.
    """
    entries = Entry.objects.filter(visibility__in=Entry.SEEN).exclude(dataset__state="preparing")
    system = System.objects.filter(slug=system_slug, pk__in=entries.values("system_id")).first()
    if system is None:
        return None
    datasets = Dataset.objects.listed().order_by("name")
    if dataset_slug:
        dataset = datasets.filter(slug=dataset_slug).first()
    else:
        dataset = datasets.filter(entries__system=system, entries__visibility__in=Entry.SEEN).first()
    if dataset is None or (measure and measure not in (dataset.measures or [dataset.primary_measure])):
        return None
    measure = measure or dataset.primary_measure
    field = ranked_boards([dataset.pk])[dataset.pk]
    label = f"{measure} on {dataset.name}"
    sign = -1 if better(measure) == "lower" else 1
    own = [entry for entry in field.entries if entry.system_id == system.pk and measure in entry.scores]
    if not own:
        off = system.entries.filter(dataset=dataset, visibility=Entry.Visibility.QUARANTINED)
        return Badge(label, "quarantined" if off.exists() else "no result", "grey")
    # The present judgements first, then what papers report, then what is stale.
    kinds = (STALE, REPORTED, CLOSED, SCORED)
    mine = max(own, key=lambda entry: (kinds.index(field.kind(entry)), sign * entry.scores[measure]))
    value, standing = mine.scores[measure], field.standing(mine, measure)
    if standing.rank is None:
        return Badge(label, f"{value:.3f}, earlier judgements", "grey")
    kind = "" if standing.ranked_in == SCORED else f" {standing.ranked_in}"
    return Badge(label, f"{value:.3f} · {standing.rank} of {standing.of}{kind}", "blue")


def width(text: str) -> int:
    """How wide a text is set, in pixels; signs of East Asian scripts are as wide as they are high."""
    return round(
        sum(_WIDTHS.get(sign, _WIDE if ord(sign) > 0x2E7F else _OTHER) for sign in text) * _SIZE / 1000
    )


def as_svg(badge: Badge) -> str:
    """The badge as a picture that says what it shows; texts keep their widths in whatever font there is."""
    badge = Badge(for_xml(badge.label), for_xml(badge.message), badge.color)
    first, second = width(badge.label), width(badge.message)
    left, right = first + 2 * _PADDING, second + 2 * _PADDING
    name = escape(f"{badge.label}: {badge.message}")
    common = f'y="14" font-family="Verdana,DejaVu Sans,sans-serif" font-size="{_SIZE}" fill="#fff"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + right}" height="{_HEIGHT}" role="img" '
        f'aria-labelledby="name"><title id="name">{name}</title>'
        f'<rect width="{left + right}" height="{_HEIGHT}" rx="3" fill="{_NAME_GROUND}"/>'
        f'<path d="M{left} 0h{right - 3}a3 3 0 0 1 3 3v14a3 3 0 0 1-3 3h-{right - 3}z" '
        f'fill="{_GROUNDS[badge.color]}"/>'
        f'<text x="{_PADDING}" {common} textLength="{first}">{escape(badge.label)}</text>'
        f'<text x="{left + _PADDING}" {common} textLength="{second}">{escape(badge.message)}</text></svg>'
    )


def as_shields(badge: Badge) -> dict[str, Any]:
    """The badge as shields.io's endpoint schema has it."""
    return {"schemaVersion": 1, "label": badge.label, "message": badge.message, "color": badge.color}
