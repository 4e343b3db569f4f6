"""Per-topic scores at the end of a round: a run's scores with best, median, and worst over all runs, as in TREC.

The scorer creates the summary, because only it knows the judged queries; the scores of a run are shown to its own
team. Best, median, and worst cover the public runs of at least four parties, so that a reader cannot derive the scores
of a single other party. A *party* is a set of teams that share members or submitters (`parties_by_team`).
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

#: Minimum number of other parties. With fewer, readers could derive the scores of a single other party.
MIN_OTHERS = 3
#: Visibilities of entries that are excluded from a round, including results held by a competition.
EXCLUDED_VISIBILITIES = (
    Entry.Visibility.WITHDRAWN,
    Entry.Visibility.QUARANTINED,
    Entry.Visibility.UNPUBLISHED,
    Entry.Visibility.HELD,
)
#: Visibilities of entries that the summary includes; it excludes private results.
SUMMARY_VISIBILITIES = (Entry.Visibility.PUBLIC, Entry.Visibility.SUPERSEDED)


@dataclass(frozen=True, slots=True)
class RoundRun:
    """A run in a round on one dataset, or the mean of a set of seeds.

    `values` is an array of shape (queries, measures). It is unrounded and must not leave the scorer.
    """

    entry: Entry
    label: str
    measures: Sequence[str]
    values: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Topic:
    """A judged query with a run's own score and statistics over all runs; None for values that are not shown."""

    query: str
    own: float | None
    best: float | None
    median: float | None
    worst: float | None

    @property
    def difference(self) -> float | None:
        """Own score minus the median."""
        return None if self.own is None or self.median is None else self.own - self.median

    @property
    def order(self) -> list[tuple[int, str]]:
        """Natural sort key of the query: 2 before 10, q9 before q10."""
        parts = re.split(r"([0-9]+)", self.query)
        return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]

    @property
    def less_median(self) -> str:
        """Formatted difference from the median."""
        return "—" if self.difference is None else f"{self.difference:+.3f}".replace("-", MINUS)


def get_round_runs(row: Round, dataset: Dataset, qrels: Qrels, teams: Collection[int] | None = None) -> list[RoundRun]:
    """Return the round's runs with a score on these qrels, optionally only those of `teams`.

    Late, withdrawn, moderated, and held runs are omitted. The seeds of a set are averaged.
    """
    entries = Entry.objects.filter(round=row, dataset=dataset, late=False).exclude(visibility__in=EXCLUDED_VISIBILITIES)
    if teams is not None:
        entries = entries.filter(system__team__in=teams)
    round_runs = []
    for entry in entries.select_related("system", "evaluation").prefetch_related("seeds__evaluation"):
        run_ids = {row.run_id for row in entry_evaluations(entry)}
        evaluations = Evaluation.objects.filter(run__in=run_ids, qrels=qrels).select_related("run")
        newest_evaluations = {row.run_id: row for row in evaluations.order_by("-run", "pk")}
        if not run_ids or newest_evaluations.keys() != run_ids:
            continue
        names, values = mean_values(list(newest_evaluations.values()))
        measures = [name for name in dataset.measures if name in names]
        tag = next(iter(newest_evaluations.values())).run.tag or entry.configuration
        label = f"{entry.system.name} · {tag}" if tag else entry.system.name
        round_runs.append(RoundRun(entry, label, measures, values[:, [names.index(name) for name in measures]]))
    return round_runs


def parties_by_team(entries: Iterable[Entry]) -> dict[int, int]:
    """Return the party of each team by team id; teams that share a member or submitter belong to one party."""
    people: dict[int, set[int]] = {}
    for entry in entries:
        if entry.system.team_id is not None:
            sender = [entry.submitter_id] if entry.submitter_id is not None else []
            people.setdefault(entry.system.team_id, set()).update(sender)
    for team, person in Membership.objects.filter(team__in=people).values_list("team", "user"):
        people[team].add(person)
    parties = {team: team for team in people}
    for first_team, second_team in combinations(people, 2):
        if people[first_team] & people[second_team] and parties[first_team] != parties[second_team]:
            parties = {
                team: parties[first_team] if team_party == parties[second_team] else team_party
                for team, team_party in parties.items()
            }
    return parties


def summarise_topics(row: Round, dataset: Dataset, qrels: Qrels, queries: Sequence[str]) -> RoundSummary:
    """Store and return best, median, and worst per query over the round's public runs; an existing summary is kept.

    Measures with at most `MIN_OTHERS` parties are omitted. This runs in the scorer. `queries` are the judged queries in
    order.
    """
    runs = [run for run in get_round_runs(row, dataset, qrels) if run.entry.visibility in SUMMARY_VISIBILITIES]
    parties = parties_by_team(run.entry for run in runs)
    values: dict[str, dict[str, list[float]]] = {}
    for measure in dataset.measures:
        measured_runs = [run for run in runs if measure in run.measures]
        teams = {run.entry.system.team_id for run in measured_runs}
        if len({parties[team] for team in teams if team is not None}) > MIN_OTHERS:
            scores = np.stack([run.values[:, run.measures.index(measure)] for run in measured_runs])
            highest, lowest = scores.max(axis=0), scores.min(axis=0)
            best, worst = (lowest, highest) if better(measure) == "lower" else (highest, lowest)
            values[measure] = {
                name: [published_value(value, hidden=dataset.hidden) for value in column.tolist()]
                for name, column in (("best", best), ("median", np.median(scores, axis=0)), ("worst", worst))
            }
    summary, _ = RoundSummary.objects.get_or_create(
        round=row,
        dataset=dataset,
        defaults={"qrels": qrels, "runs": len(runs), "queries": list(queries), "values": values},
    )
    return summary


def topics(summary: RoundSummary, run: RoundRun | None, measure: str) -> list[Topic]:
    """Return the judged queries in natural order, with the run's published scores and the summary's."""
    hidden = summary.dataset.hidden
    own_values: Sequence[float | None] = [None] * len(summary.queries)
    if run is not None and measure in run.measures and len(run.values) == len(summary.queries):
        column = run.values[:, run.measures.index(measure)]
        own_values = [published_value(value, hidden=hidden) for value in column.tolist()]
    summary_values: Mapping[str, Sequence[float]] = summary.values.get(measure, {})
    missing_values: Sequence[float | None] = [None] * len(summary.queries)
    columns = (
        own_values,
        *(summary_values.get(name, missing_values) for name in ("best", "median", "worst")),
    )
    result = [Topic(query, *row) for query, *row in zip(summary.queries, *columns, strict=True)]
    return sorted(result, key=attrgetter("order"))
