"""Comparison of two to six systems."""

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.html import format_html_join
from django.views.decorators.http import require_safe

from leaderboard.boards.columns.marks import SEEDS_NOTE
from leaderboard.boards.state import BoardState, last_value
from leaderboard.comparison.pairs import compare_by_query, compare_slices, overlaps
from leaderboard.comparison.queries.collection import open_collection
from leaderboard.comparison.selection import (
    COMPARE_PARAMETERS,
    MAX_SYSTEMS,
    CompareState,
    SystemChoice,
    distinct_choices,
    entries_of_systems,
    resolve_systems,
    system_choices,
)
from leaderboard.comparison.suggestions import suggested_comparisons
from leaderboard.comparison.table import Comparison, compare, datasets_by_footnote
from leaderboard.core.cache.pages import PageVariant, cache_page
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.http.query_parameters import reads
from leaderboard.results.records import entries_with_values
from leaderboard.results.slices import MIN_TESTED
from leaderboard.views.board_views import site_revision


def _variant(request: HttpRequest) -> PageVariant | None:
    """Return the view of a comparison for the page cache, or None if a parameter has an unknown value."""
    try:
        query = CompareState.from_parameters(request.GET).query_string()
    except UnknownChoice:
        return None
    return PageVariant(query, common=not query)


@require_safe
@cache_page(site_revision, _variant)
@reads(*COMPARE_PARAMETERS)
def compare_systems(request: HttpRequest) -> HttpResponse:
    """Compare systems per dataset and, for open judgments, per query.

    URLs of submitted forms redirect to a shorter one. Unknown systems and values lead to 400 with suggestions.
    """
    choices = system_choices()
    labels = ((choice.slug, choice.label) for choice in choices.values())
    options = format_html_join("", '<option value="{}">{}</option>', labels)
    try:
        requested_view = CompareState.from_parameters(request.GET)
        view = requested_view.with_values(systems=resolve_systems(requested_view.systems, choices))
        context = _context(view, choices) if len(view.systems) > 1 else {}
    except UnknownChoice as error:
        context = {"options": options, **_form(CompareState(), choices), **_error(request, error, choices)}
        context["ready_made"] = suggested_comparisons()
        return render(request, "leaderboard/compare.html", context, status=400)
    values = request.GET.getlist("system")
    if request.GET.urlencode() and view.systems != tuple(values):  # Shorten the URL of a submitted form.
        if not values[0]:  # In the form of a new comparison, the user has not chosen a reference.
            view = view.with_baseline_first()
        return redirect(_url(view))
    if not view.systems:
        context = {"ready_made": suggested_comparisons()}
    context = {"options": options, **_form(view, choices), **context}
    return render(request, "leaderboard/compare.html", context)


def _url(view: CompareState) -> str:
    return reverse("compare") + view.query_string()


def _error(request: HttpRequest, error: UnknownChoice, choices: dict[str, SystemChoice]) -> dict[str, Any]:
    """Return the context of a form with an unknown choice: the user's input, and a link for each suggestion."""
    parameter = {"system to compare by query": "with"}.get(error.parameter, error.parameter)
    entered_values = [value.strip() for value in request.GET.getlist("system") if value.strip()]
    links = []
    for choice in error.choices if error.parameter != "number of systems" else ():
        query = request.GET.copy()
        query.setlist("system", [choice if value == error.value else value for value in entered_values])
        if parameter != "system":
            query[parameter] = choice
        label = choices[choice].label if choice in choices else choice
        links.append((label, f"{reverse('compare')}?{query.urlencode()}"))
    names = {choices[slug].name.casefold() for slug in error.choices if slug in choices}
    other_parameters = {
        name: last_value(request.GET, name) for name in ("measure", "dataset", "benchmark") if name != parameter
    }
    return {
        "view": CompareState().with_values(**other_parameters),
        "error": error,
        "suggestions": links,
        "several": names == {error.value.casefold()},
        "boxes": [*entered_values[:MAX_SYSTEMS], "", ""][: max(2, min(len(entered_values), MAX_SYSTEMS))],
    }


def _form(view: CompareState, choices: dict[str, SystemChoice]) -> dict[str, Any]:
    """Return the context of the form: the selected systems, with links that remove each or move it to the front."""
    choices_by_slug = distinct_choices(view.systems, choices)
    return {
        "section": "compare",
        "view": view,
        "systems": [
            (choices_by_slug[slug], _url(view.without_system(slug)), _url(view.with_first_system(slug)))
            for slug in view.systems
        ],
        "examples": [choice.label for choice in [*choices.values()][:2]],
        "boxes": [""] * (max(1, 2 - len(view.systems)) if len(view.systems) < MAX_SYSTEMS else 0),
        "most": MAX_SYSTEMS,
    }


def _context(view: CompareState, choices: dict[str, SystemChoice]) -> dict[str, Any]:
    """Return the context of a comparison of two or more systems: rows of datasets, and details of one dataset."""
    comparison = compare(view.systems, entries_of_systems(view.systems), view.measure, view.benchmark)
    compared_choices = distinct_choices(view.systems, choices)
    gaps = {
        (choice, cell.gap): (choice.name, row.name, cell)  # Both halves of the topics have the same gap.
        for row in reversed(comparison.rows)
        for choice, cell in zip(compared_choices.values(), row.cells, strict=True)
        if cell.gap
    }
    pair_rows = [row for row in comparison.rows if row.complete and view.dataset in ("", row.slug)]
    pair_rows = sorted(pair_rows, key=lambda row: not row.tested) if len(view.systems) == 2 else []
    return {
        "verdict": pair_rows[0] if pair_rows and (view.dataset or not comparison.means) else None,
        "gaps": gaps.values(),
        "comparison": comparison,
        "rows": [
            (row, _url(view.with_values(dataset=row.slug)) + "#by-query" if row.tested else "")
            for row in comparison.rows
        ],
        "reasons": datasets_by_footnote(comparison.rows),
        "seeds_note": SEEDS_NOTE if any(cell.spread for row in comparison.rows for cell in row.cells) else "",
        **_one_dataset(view, comparison, compared_choices),
    }


def _one_dataset(view: CompareState, comparison: Comparison, choices: dict[str, SystemChoice]) -> dict[str, Any]:
    """Return the context of the comparison by query, on the selected dataset or the first one with tests.

    It contains one pair of systems and the overlaps of top documents. It is empty if no dataset has tests. Takes at
    most three queries. Raises UnknownChoice if the selected system has no test on the dataset.
    """
    testable = {row.slug: row for row in comparison.rows if row.tested}
    if view.dataset and view.dataset not in testable:
        names = {row.slug: row.name for row in comparison.rows}
        return {"no_values_on": names.get(view.dataset, view.dataset)}
    row = testable.get(view.dataset) or next(iter(testable.values()), None)
    if row is None:
        return {}
    other_slugs = [slug for slug, cell in zip(view.systems, row.cells, strict=True) if cell.tested]
    if view.other and view.other not in other_slugs:
        raise UnknownChoice("system to compare by query", view.other, other_slugs)
    other_slug = view.other or other_slugs[0]
    collection = open_collection(row.slug)
    if collection is None:
        return {}
    compared_entries = [
        (choices[slug], cell.entry.pk)
        for slug, cell in zip(view.systems, row.cells, strict=True)
        if cell.comparable and cell.entry
    ]
    entries = entries_with_values(pk for _, pk in compared_entries)
    by_slug = {choice.slug: entries[pk] for choice, pk in compared_entries}
    pair = compare_by_query(collection, [by_slug[view.systems[0]], by_slug[other_slug]], row.measure)
    compared_rows = [entries[pk] for _, pk in compared_entries]
    first, other = choices[view.systems[0]], choices[other_slug]
    shared_documents = overlaps(collection, compared_rows)
    return {
        "one": row,
        "pair": pair,
        "p_values": row.cells[view.systems.index(other_slug)].p_values_text,
        "first": first,
        "other": other,
        "sides": pair and [(other.name, pair.second_wins), (first.name, pair.first_wins)],
        "pair_slugs": [view.systems[0], other_slug],
        "others": [
            (choices[slug], slug == other_slug, _url(view.with_values(dataset=row.slug, other=slug)) + "#by-query")
            for slug in other_slugs
        ],
        "min_tested": MIN_TESTED,
        "slices": compare_slices(collection, compared_rows, row.measure),
        "compared_choices": [choice for choice, _ in compared_entries],
        "overlaps": shared_documents
        and [
            (compared_entries[first][0], compared_entries[second][0], f"{documents:.1f}", f"{jaccard:.2f}")
            for first, second, documents, jaccard in shared_documents
        ],
        "seeds": [entry.system.name for entry in by_slug.values() if entry.seed_count],
        "state": BoardState(measure=view.measure),
    }
