"""Scores by topic at a round's end: a run's own beside best, median and worst over what came in time.

As TREC gives them to its participants. The scorer makes the summary, since it alone knows which queries are judged;
what is told of a run is its own team's. Best, median and worst are over the public runs, of four parties at least, so
that whoever reads them has three others in them: of fewer, one's own values and these would give away another's. A
*party* is a team with every other that shares a member or a sender with it (`parties_by_team`).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter

import numpy as np
from numpy.typing import NDArray

from leaderboard.core.measures import better
from leaderboard.core.text.numbers import MINUS
from leaderboard.models import Dataset, Entry, Evaluation, Membership, Qrels, Round, RoundSummary
from leaderboard.results.records import entry_evaluations, mean_values
from leaderboard.results.values import published_value

#: Parties beside the reader's own: from fewer, a reader who takes the own values away learns what one other has.
LEAST_OTHERS = 3
#: What is no run of a round any more, and what nothing is told of: a competition's held results stay held.
TAKEN_OFF = (
    Entry.Visibility.WITHDRAWN,
    Entry.Visibility.QUARANTINED,
    Entry.Visibility.UNPUBLISHED,
    Entry.Visibility.HELD,
)
#: What is summed up: a private result is for its own team, in the summary too.
SUMMED_UP = (Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class RoundRun:
    """A run of a round on one dataset, of a seed set the mean of its seeds.

    `values` has the shape (queries, measures): unrounded, for the scorer; see `own_values` for what leaves it.
    """

    entry: Entry
    label: str
    measures: Sequence[str]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Topic:
    """One judged query: a run's own value beside those of all; None where these are not told."""

    query: str
    own: float | None
    best: float | None
    median: float | None
    worst: float | None

    @property
    def difference(self) -> float | None:
        """The own value less the median."""
        return None if self.own is None or self.median is None else self.own - self.median

    @property
    def order(self) -> list[tuple[int, str]]:
        """Sort key of its query as people count: 2 before 10, q9 before q10."""
        parts = re.split(r"([0-9]+)", self.query)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    @property
    def less_median(self) -> str:
        """The same as people read it."""
        return "—" if self.difference is None else f"{self.difference:+.3f}".replace("-", MINUS)


def runs_of(
    row: Round, dataset: Dataset, qrels: Qrels, teams: Collection[int] | None = None
) -> list[RoundRun]:
    """The runs of the round that came in time and stand, evaluated on these judgements; with `teams` theirs alone."""
    entries = Entry.objects.filter(round=row, dataset=dataset, late=False).exclude(visibility__in=TAKEN_OFF)
    if teams is not None:
        entries = entries.filter(system__team__in=teams)
    found = []
    for entry in entries.select_related("system", "evaluation").prefetch_related("seeds__evaluation"):
        wanted = {each.run_id for each in entry_evaluations(entry)}
        evaluations = Evaluation.objects.filter(run__in=wanted, qrels=qrels).select_related("run")
        newest = {each.run_id: each for each in evaluations.order_by("-run", "pk")}
        if not wanted or newest.keys() != wanted:
            continue
        names, values = mean_values(list(newest.values()))
        measures = [name for name in dataset.measures if name in names]
        tag = next(iter(newest.values())).run.tag or entry.configuration
        label = f"{entry.system.name} · {tag}" if tag else entry.system.name
        found.append(RoundRun(entry, label, measures, values[:, [names.index(name) for name in measures]]))
    return found


def parties_by_team(entries: Iterable[Entry]) -> dict[int, int]:
    """By team, those of the entries: which party it is of. Teams with a member or a sender in common are one party."""
    people: dict[int, set[int]] = {}
    for entry in entries:
        if entry.system.team_id is not None:
            sender = [entry.submitter_id] if entry.submitter_id is not None else []
            people.setdefault(entry.system.team_id, set()).update(sender)
    for team, person in Membership.objects.filter(team__in=people).values_list("team", "user"):
        people[team].add(person)
    party = {team: team for team in people}
    for one, other in combinations(people, 2):
        if people[one] & people[other] and party[one] != party[other]:
            party = {team: party[one] if each == party[other] else each for team, each in party.items()}
    return party


def summarise_topics(row: Round, dataset: Dataset, qrels: Qrels, queries: Sequence[str]) -> RoundSummary:
    """Best, median and worst by query over the round's public runs; `queries` are the judged ones in their order.

    For the scorer. Made once; again, the first one stays.
    """
    runs = [run for run in runs_of(row, dataset, qrels) if run.entry.visibility in SUMMED_UP]
    party = parties_by_team(run.entry for run in runs)
    values: dict[str, dict[str, list[float]]] = {}
    for measure in dataset.measures:
        having = [run for run in runs if measure in run.measures]
        teams = {run.entry.system.team_id for run in having}
        if len({party[team] for team in teams if team is not None}) > LEAST_OTHERS:
            columns = np.stack([run.values[:, run.measures.index(measure)] for run in having])
            values[measure] = _summary(columns, measure, hidden=dataset.hidden)
    summary, _ = RoundSummary.objects.get_or_create(
        round=row,
        dataset=dataset,
        defaults={"qrels": qrels, "runs": len(runs), "queries": list(queries), "values": values},
    )
    return summary


def _summary(values: NDArray[np.float64], measure: str, *, hidden: bool) -> dict[str, list[float]]:
    """Of an array of the shape (runs, queries)."""
    highest, lowest = values.max(axis=0), values.min(axis=0)
    best, worst = (lowest, highest) if better(measure) == "lower" else (highest, lowest)
    columns = {"best": best, "median": np.median(values, axis=0), "worst": worst}
    return {
        name: [published_value(value, hidden=hidden) for value in column.tolist()]
        for name, column in columns.items()
    }


def topics(summary: RoundSummary, run: RoundRun | None, measure: str) -> list[Topic]:
    """The judged queries with the run's own values, as they leave the scorer, beside the summary's."""
    hidden = summary.dataset.hidden
    own: Sequence[float | None] = [None] * len(summary.queries)
    if run is not None and measure in run.measures and len(run.values) == len(summary.queries):
        column = run.values[:, run.measures.index(measure)]
        own = [published_value(value, hidden=hidden) for value in column.tolist()]
    of_all: Mapping[str, Sequence[float]] = summary.values.get(measure, {})
    nothing: Sequence[float | None] = [None] * len(summary.queries)
    columns = (own, *(of_all.get(name, nothing) for name in ("best", "median", "worst")))
    found = [Topic(query, *row) for query, *row in zip(summary.queries, *columns, strict=True)]
    return sorted(found, key=attrgetter("order"))
