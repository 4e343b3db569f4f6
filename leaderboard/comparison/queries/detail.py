"""One query of an open dataset: what was judged for it, and what each system finds first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from evaluation.collections.excerpts import Excerpt
from evaluation.runs.top_documents import displayed_documents
from leaderboard.boards.state import Parameters, choice, last_value, query_of
from leaderboard.comparison.queries.collection import OpenCollection, query_url
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import canonical_name
from leaderboard.core.text import numbers
from leaderboard.datasets.derived_files import excerpts, top_documents
from leaderboard.models import Entry, Run
from leaderboard.results.records import entries_with_values, entry_evaluations, measure_values

#: Systems side by side, and as many as one sees at first.
MOST_SYSTEMS, FIRST_SYSTEMS = 12, 6
DEPTH = 10
#: Judged documents shown at first with their texts; `judged=all` shows all. Mere ids are always all there.
FIRST_JUDGED = 50


#: The query parameters of a query's page.
QUERY_PARAMETERS = ("measure", "system", "judged")


@dataclass(frozen=True, slots=True)
class QueryState:
    """What is seen of a query; empty fields mean the default."""

    measure: str = ""
    systems: tuple[str, ...] = ()
    all_judged: bool = False

    @classmethod
    def read(cls, parameters: Parameters) -> QueryState:
        """The view that a query string asks for. Raises UnknownChoice for more systems than fit."""
        systems = tuple(dict.fromkeys(slug for slug in parameters.getlist("system") if slug))
        if len(systems) > MOST_SYSTEMS:
            raise UnknownChoice("number of systems", str(len(systems)), expected=f"1 to {MOST_SYSTEMS}")
        measure = canonical_name(last_value(parameters, "measure"))
        return cls(measure, systems, choice(parameters, "judged", ("all",)) == "all")

    def query_string(self) -> str:
        """`?system=…`, or nothing for the default view."""
        systems = (("system", slug) for slug in self.systems)
        return query_of(("measure", self.measure), *systems, ("judged", "all" * self.all_judged))


class RankedDocument(NamedTuple):
    """A document as the page shows it; `grade` is None where it was not judged for this query."""

    id: str
    excerpt: Excerpt | None
    grade: int | None
    relevant: bool
    found_by: int = 0
    anchor: str = ""


class QueryRanking(NamedTuple):
    """What a system has on the query. `documents` is None where its run is not prepared for pages."""

    system: str
    slug: str
    configuration: str
    is_baseline: bool
    value: str
    delta: str
    direction: str
    seeds: int
    documents: list[RankedDocument] | None = None


def query_page(collection: OpenCollection, query_id: str, state: QueryState) -> dict[str, Any] | None:
    """Return what the page of a judged query shows, None for any other id. Four queries. Raises UnknownChoice."""
    row = collection.judgements.find_row(query_id)
    if row is None:
        return None
    dataset = collection.dataset
    measure = collection.measure(state.measure)
    best = collection.best_entries(measure)
    for slug in state.systems:
        if slug not in best:
            raise UnknownChoice("system", slug, list(best)[:20])
    wanted = [best[slug].pk for slug in state.systems or list(best)[:FIRST_SYSTEMS]]
    entries = entries_with_values(wanted)
    chosen = [entries[pk] for pk in wanted if pk in entries]
    graded = collection.judgements.graded(row)
    found = _top_documents(collection, chosen, query_id)
    texts = excerpts(dataset)
    found_by = Counter(name for documents in found.values() for name in documents or ())
    ordered = sorted(graded, key=lambda name: (-graded[name], -found_by[name], name))
    shown_judged = ordered if state.all_judged or texts is None else ordered[:FIRST_JUDGED]
    names = {*found_by, *shown_judged}
    written = texts.find(names) if texts else {}
    anchors = {name: f"judged-{number}" for number, name in enumerate(shown_judged, 1)}
    documents = {
        name: RankedDocument(
            id=name,
            excerpt=written.get(name),
            grade=graded.get(name),
            relevant=graded.get(name, -1) >= dataset.relevance_level,
            found_by=found_by.get(name, 0),
            anchor=anchors.get(name, ""),
        )
        for name in names
    }
    rankings = [
        ranking._replace(documents=None if first is None else [documents[name] for name in first])
        for ranking, first in zip(_rankings(chosen, measure, row), found.values(), strict=True)
    ]
    before, after = collection.neighbours(row)
    return {
        "id": query_id,
        "text": collection.text(query_id),
        "measure": measure,
        "rankings": rankings,
        # By rank, with a blank where a ranking is shorter.
        "rows": list(zip_longest(*(ranking.documents or () for ranking in rankings))),
        "judged": [documents[name] for name in shown_judged],
        "judged_total": len(graded),
        "relevant_total": sum(grade >= dataset.relevance_level for grade in graded.values()),
        "systems": [(slug, entry.system.name, entry.pk in entries) for slug, entry in best.items()],
        "before": query_url(dataset.slug, before) if before is not None else "",
        "after": query_url(dataset.slug, after) if after is not None else "",
        "has_texts": texts is not None,
        "excluded": collection.excludes_for(query_id),
    }


def first_run(entry: Entry) -> Run:
    """Return the entry's run; of a seed set that of its first seed."""
    return entry_evaluations(entry)[0].run


def _top_documents(
    collection: OpenCollection, chosen: Sequence[Entry], query_id: str
) -> dict[int, list[str] | None]:
    """The first documents of every entry, by its id."""
    found: dict[int, list[str] | None] = {}
    drop = collection.dataset.drop_self_matches
    for entry in chosen:
        top = top_documents(first_run(entry), collection.excluded_sha256)
        found[entry.pk] = None
        if top is not None:
            first = top.of(query_id)
            found[entry.pk] = displayed_documents(first, query_id, depth=DEPTH, drop_self_matches=drop)
    return found


def _rankings(chosen: Sequence[Entry], measure: str, row: int) -> list[QueryRanking]:
    """Return the entries' values on a query, with differences from the first, without documents."""
    columns = [measure_values(entry, measure) for entry in chosen]
    values = [None if column is None else float(column[row]) for column in columns]
    rankings = []
    for place, (entry, value) in enumerate(zip(chosen, values, strict=True)):
        delta = numbers.difference(value, values[0]) if place else None
        ranking = QueryRanking(
            system=entry.system.name,
            slug=entry.system.slug,
            configuration=entry.configuration,
            is_baseline=entry.is_baseline,
            value=numbers.format_value(value, 3),
            delta="" if delta is None else numbers.signed(delta, 3),
            direction=numbers.direction(delta, measure),
            seeds=entry.seed_count,
        )
        rankings.append(ranking)
    return rankings
