"""Page of a rolling benchmark: scores by batch, and the gap of each system over time."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.utils.safestring import SafeString

from leaderboard.boards.columns.gap import gap_texts
from leaderboard.boards.forest import MAX_ROWS, ForestRow, draw_forest
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.numbers import format_value, signed
from leaderboard.models import Dataset, Entry, System, TopicBatch, TopicSource
from leaderboard.results.significance.statements import Gap, Twins, lost_class, present_results, statements, with_gaps


class BatchResult(NamedTuple):
    """A system's score on a batch and its gain over the baseline, as text, and its gap to the hidden batch.

    `direction` is the CSS class of a significant gain, as on boards.
    """

    score: str
    gain: str
    direction: str
    gap: Gap | None
    gap_texts: tuple[str, str] | None


class SystemRow(NamedTuple):
    """A system with its results in the order of the batches; None for a batch without a result."""

    name: str
    system: System
    results: Sequence[BatchResult | None]
    has_significant_gap: bool


def rolling_benchmark_page(source: TopicSource) -> dict[str, Any]:
    """Return the context of a rolling benchmark's page, from published values only.

    It contains the batches with a board, oldest first; the newest hidden one, with which revealed ones are compared;
    the rows of the table, those with a significant gap first; and the figure of these gaps.
    """
    visible_batches = source.batches.exclude(started_at=None).exclude(dataset__state=Dataset.State.PREPARING)
    batches = {batch.dataset_id: batch for batch in visible_batches.select_related("dataset")}
    hidden = next((batch for batch in reversed(batches.values()) if batch.is_hidden), None)
    rows = sorted(_build_rows(batches, hidden), key=lambda row: (not row.has_significant_gap, row.name.casefold()))
    figure = _draw_gaps(rows, list(batches.values()), hidden)
    return {"benchmark": source, "batches": batches.values(), "hidden": hidden, "rows": rows, "figure": figure}


def _build_rows(batches: Mapping[Any, TopicBatch], hidden: TopicBatch | None) -> list[SystemRow]:
    """Return a row for each system and configuration with a public result; `batches` are by dataset id."""
    measures = {pk: batch.dataset.primary_measure for pk, batch in batches.items() if batch.dataset}
    results = present_results([Twins(pk, pk, "") for pk in batches])
    pairs = [Twins(pk, hidden.dataset_id or 0, measures[pk]) for pk in batches if hidden and not batches[pk].is_hidden]
    boards = with_gaps(statements(batches), pairs, results)
    scores = dict(Entry.objects.filter(dataset__in=batches).values_list("pk", "scores"))
    cells: dict[tuple[int, str], dict[int, BatchResult]] = {}
    for pk, entries in results.items():
        gains = boards[pk].gains(measures[pk])[1]
        for entry, key in entries.items():
            gain = signed(gains[entry].value, 3) if entry in gains else ""
            gap = boards[pk].gaps.get(entry) if not batches[pk].is_hidden else None
            score = format_value(scores[entry].get(measures[pk]), 3)
            test = boards[pk].for_entry(entry, measures[pk])
            direction = "up" if test.better else "down" if test.worse else "muted"
            cells.setdefault(key, {})[pk] = BatchResult(score, gain, direction + lost_class(test), gap, gap_texts(gap))
    systems = System.objects.in_bulk({system for system, _ in cells})
    return [
        SystemRow(
            f"{systems[system]}{configuration and f' ({configuration})'}",
            systems[system],
            [row_results.get(pk) for pk in batches],
            any(result.gap.shown for result in row_results.values() if result.gap),
        )
        for (system, configuration), row_results in cells.items()
    ]


def _draw_gaps(rows: Sequence[SystemRow], batches: Sequence[TopicBatch], hidden: TopicBatch | None) -> SafeString:
    """Return the figure of the gaps over time of systems with a significant gap; empty if there are none."""
    points = [
        ForestRow(f"{row.name}{day} (batch {batch.number})", gap.value, gap[1:3], "gap")
        for row in [row for row in rows if row.has_significant_gap][:MAX_ROWS]
        for batch, result in zip(batches, row.results, strict=True)
        if not batch.is_hidden and (gap := result and result.gap)
        for day in [f", {format_day(batch.revealed_at)}" if batch.revealed_at else ""]
    ]
    measure = hidden.dataset.primary_measure if hidden and hidden.dataset else ""
    return draw_forest(points, f"gain in {measure}", f"batch {hidden.number} (hidden)" if hidden else "")
