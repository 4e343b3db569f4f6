"""A single query of an open dataset: its judged documents, and the top documents of each system."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, NamedTuple

from django.utils.translation import gettext as _

from evaluation.collections.excerpts import Excerpt
from evaluation.runs.top_documents import displayed_documents
from leaderboard.boards.state import Parameters, build_query, choice, last_value
from leaderboard.comparison.queries.collection import OpenCollection, query_url
from leaderboard.comparison.queries.responses import ShownResponse, shown_responses
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.measures import canonical_name
from leaderboard.core.text import numbers
from leaderboard.datasets.derived_files import excerpts, top_documents
from leaderboard.datasets.qrels import open_answers
from leaderboard.models import REFERENCE_TYPES, Entry, Run
from leaderboard.results.records import entries_with_values, entry_evaluations, measure_values

#: Maximum number of systems side by side, and the number shown by default.
MAX_SYSTEMS, FIRST_SYSTEMS = 12, 6
DEPTH = 10
#: Number of judged documents shown with their texts unless `judged=all`. If there are no texts, all ids are
#: shown.
FIRST_JUDGED = 50


#: Query parameters of a query's page.
QUERY_PARAMETERS = ("measure", "system", "judged")


@dataclass(frozen=True, slots=True)
class QueryState:
    """The state of a query's page; empty fields mean the default."""

    measure: str = ""
    systems: tuple[str, ...] = ()
    all_judged: bool = False

    @classmethod
    def from_parameters(cls, parameters: Parameters) -> QueryState:
        """Return the state that a query string describes. Raises UnknownChoice for too many systems."""
        systems = tuple(dict.fromkeys(slug for slug in parameters.getlist("system") if slug))
        if len(systems) > MAX_SYSTEMS:
            raise UnknownChoice("number of systems", str(len(systems)), expected=f"1 to {MAX_SYSTEMS}")
        measure = canonical_name(last_value(parameters, "measure"))
        return cls(measure, systems, choice(parameters, "judged", ("all",)) == "all")

    def query_string(self) -> str:
        """Return `?system=…`, or an empty string for the default view."""
        systems = (("system", slug) for slug in self.systems)
        return build_query(("measure", self.measure), *systems, ("judged", "all" * self.all_judged))


class RankedDocument(NamedTuple):
    """A document as shown on the page; `grade` is None if it was not judged for the query."""

    id: str
    excerpt: Excerpt | None
    grade: int | None
    relevant: bool
    found_by: int = 0
    anchor: str = ""


class QueryRanking(NamedTuple):
    """A system's value and ranking for the query; `documents` is None if its run is not prepared for pages.

    `delta` is the difference from the first system, empty if there is none.
    """

    system: str
    slug: str
    configuration: str
    value: str
    delta: str
    seeds: int
    documents: list[RankedDocument] | None = None
    response: ShownResponse | None = None


def query_page(collection: OpenCollection, query_id: str, state: QueryState) -> dict[str, Any] | None:
    """Return the template context of a judged query's page, or None if the query is not judged, in four queries.

    It contains the rankings of the selected systems (by default the first ones) and the query's judged documents.
    Raises UnknownChoice for an unknown measure or system.
    """
    row = collection.judgements.find_row(query_id)
    if row is None:
        return None
    dataset = collection.dataset
    measure = collection.choose_measure(state.measure)
    best_entries = collection.best_entries(measure)
    for slug in state.systems:
        if slug not in best_entries:
            raise UnknownChoice("system", slug, list(best_entries)[:20])
    entry_ids = [best_entries[slug].pk for slug in state.systems or list(best_entries)[:FIRST_SYSTEMS]]
    entries = entries_with_values(entry_ids)
    selected_entries = [entries[pk] for pk in entry_ids if pk in entries]
    grades = collection.judgements.get_grades(row)
    documents_by_entry = _top_documents(collection, selected_entries, query_id)
    texts = excerpts(dataset)
    found_by = Counter(name for documents in documents_by_entry.values() for name in documents or ())
    sorted_judged = sorted(grades, key=lambda name: (-grades[name], -found_by[name], name))
    shown_judged = sorted_judged if state.all_judged or texts is None else sorted_judged[:FIRST_JUDGED]
    names = {*found_by, *shown_judged}
    excerpts_by_id = texts.find(names) if texts else {}
    anchors = {name: f"judged-{number}" for number, name in enumerate(shown_judged, 1)}
    documents = {}
    for name in names:
        relevant = grades.get(name, -1) >= dataset.relevance_level
        found, anchor = found_by.get(name, 0), anchors.get(name, "")
        documents[name] = RankedDocument(name, excerpts_by_id.get(name), grades.get(name), relevant, found, anchor)
    correct_answers, labels = open_answers(dataset, query_id)
    responses = shown_responses(selected_entries, query_id, labels)
    rankings = []
    for ranking, (entry, top_ids) in zip(
        _rankings(selected_entries, measure, row), documents_by_entry.items(), strict=True
    ):
        top = None if top_ids is None else [documents[name] for name in top_ids]
        rankings.append(ranking._replace(documents=top, response=responses.get(entry)))
    previous_id, next_id = collection.neighbours(row)
    lists = [ranking.documents or () for ranking in rankings]
    return {
        "id": query_id,
        "text": collection.text(query_id),
        "measure": measure,
        "correct_answers": correct_answers,
        "has_responses": bool(responses),
        "rankings": rankings,
        # The flag is true if most rankings with documents end above this rank.
        "rows": [(row, 2 * (len(row) - row.count(None)) < sum(map(bool, lists))) for row in zip_longest(*lists)],
        "judged": [documents[name] for name in shown_judged],
        "judged_total": len(grades),
        "relevant_total": sum(grade >= dataset.relevance_level for grade in grades.values()),
        "systems": [(slug, entry.system.name, entry.pk in entries) for slug, entry in best_entries.items()],
        "before": query_url(dataset.slug, previous_id) if previous_id is not None else "",
        "after": query_url(dataset.slug, next_id) if next_id is not None else "",
        "has_texts": texts is not None,
        "excluded": collection.has_exclusions(query_id),
    }


def first_run(entry: Entry) -> Run:
    """Return the entry's run; for a seed set, the run of its first seed."""
    return entry_evaluations(entry)[0].run


def _top_documents(
    collection: OpenCollection, selected_entries: Sequence[Entry], query_id: str
) -> dict[int, list[str] | None]:
    """Return the query's top documents in each entry's run, by entry id; None if the run is not prepared for pages."""
    documents_by_entry: dict[int, list[str] | None] = {}
    drop = collection.dataset.drop_self_matches
    for entry in selected_entries:
        run_documents = top_documents(first_run(entry), collection.excluded_sha256)
        documents_by_entry[entry.pk] = None
        if run_documents is not None:
            ranking = run_documents.get_documents(query_id)
            documents_by_entry[entry.pk] = displayed_documents(ranking, query_id, depth=DEPTH, drop_self_matches=drop)
    return documents_by_entry


def _rankings(selected_entries: Sequence[Entry], measure: str, row: int) -> list[QueryRanking]:
    """Return the entries' values for the query in `row` and differences from the first entry, without documents."""
    columns = [measure_values(entry, measure) for entry in selected_entries]
    values = [None if column is None else float(column[row]) for column in columns]
    deltas = [numbers.difference(value, values[0]) if position else None for position, value in enumerate(values)]
    return [
        QueryRanking(
            system=entry.system.name,
            slug=entry.system.slug,
            configuration=", ".join(filter(None, [entry.configuration, _(REFERENCE_TYPES.get(entry.run_type, ""))])),
            value=numbers.format_value(value, 3),
            delta=numbers.signed(delta, 3) if delta else "",
            seeds=entry.seed_count,
        )
        for entry, value, delta in zip(selected_entries, values, deltas, strict=True)
    ]
