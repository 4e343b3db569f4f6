"""Where a result stands, in one sentence: the same on its card, in lists, the API, notices, mail and feeds.

Ranks and differences are those of published scores. What is said of certainty comes from
`results.significance.statements`, which knows how the judgements are protected. Nothing is said of a result that is
held, withdrawn or in quarantine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from django.contrib.humanize.templatetags.humanize import ordinal

from leaderboard.boards.system.rank import RankedBoard, ranked_boards
from leaderboard.boards.wording import separation_text, significance_text
from leaderboard.core.text import deltas
from leaderboard.core.text.baselines import baseline_label
from leaderboard.core.text.numbers import DECIMALS, format_value, lead
from leaderboard.models import Entry
from leaderboard.results.kinds import CLOSED
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
        delta=deltas.absolute(score, baseline.scores[measure]) if baseline else None,
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
