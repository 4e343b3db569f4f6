"""Means by task and by domain: where a system is good, and where not (BEIR, finding 7)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from leaderboard.boards.model import Row
from leaderboard.figures.axes import linear_axis
from leaderboard.figures.bars import bar_layout
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import GREY, HUES, PAPER, SYMBOLS
from leaderboard.figures.rows import (
    Place,
    chosen_first,
    counts_several,
    datasets_of,
    mean,
    names_of,
    only_kind,
    present,
    score_format,
    titled,
    told_kind,
)

MOST_SYSTEMS = 8
UNKNOWN = "not said"


def by_task(request: FigureRequest) -> Plot:
    """A line for each task, a point for each system."""
    return _build(request, "task", lambda place: place.member.task)


def by_domain(request: FigureRequest) -> Plot:
    """A line for each domain, a point for each system."""
    return _build(request, "domain", lambda place: place.member.domain)


def _build(request: FigureRequest, what: str, group_of: Any) -> Plot:
    page = request.benchmark_page
    groups: dict[str, list[Place]] = {}
    for place in datasets_of(page):
        groups.setdefault(group_of(place) or UNKNOWN, []).append(place)
    every = present(page.board)
    of_kind, kind = only_kind(every)
    rows = chosen_first(of_kind, request.systems or request.state.pins, MOST_SYSTEMS)
    rows = _with_baseline(rows, of_kind)
    means = {group: [mean(row, places) for row in rows] for group, places in groups.items()}
    means = {group: found for group, found in means.items() if any(value is not None for value in found)}
    if not rows or not means:
        return Plot.empty(f"No system of this view has all datasets of any {what}.")
    names, form = names_of(rows), score_format(rows)
    labels = {group: f"{group} ({len(groups[group])})" for group in means}
    return Plot(
        data=_traces(rows, names, means, labels, form),
        layout=bar_layout(
            len(means),
            34,
            xaxis=linear_axis(
                f"Mean {page.board.measure}",
                [value for found in means.values() for value in found if value is not None],
            ),
            yaxis_showgrid=True,
        ),
        table=Table(
            (what.capitalize(), "Datasets", *names),
            [(group, len(groups[group]), *found) for group, found in means.items()],
            ("", "d", *[form] * len(names)),
        ),
        caption=f"Mean {page.board.measure} over the counted datasets of each {what} of {titled(page.board)}, for "
        f"{len(rows)} systems, {told_kind(kind)} only. In brackets, how many datasets; a system that lacks one of them "
        "has no mean there.",
        subtitle=f"{page.board.title}, {page.board.measure}, {told_kind(kind)}",
        notes=[f"{len(rows)} of {len(of_kind)} systems; pinning others on the board shows those."]
        if len(of_kind) > len(rows)
        else [],
    )


def _with_baseline(rows: Sequence[Row], every: Sequence[Row]) -> list[Row]:
    """The rows with a baseline among them: what the others are compared with."""
    if any(row.entry.is_baseline for row in rows):
        return list(rows)
    baseline = [row for row in every if row.entry.is_baseline][:1]
    return [*rows[: MOST_SYSTEMS - len(baseline)], *baseline]


def _traces(
    rows: Sequence[Row],
    names: Sequence[str],
    means: Mapping[str, Sequence[float | None]],
    labels: Mapping[str, str],
    form: str,
) -> list[go.Scatter]:
    hues = [hue for hue in HUES if hue != GREY]
    found, others = [], 0
    for number, (row, name) in enumerate(zip(rows, names, strict=True)):
        look = {"color": GREY, "symbol": "line-ns-open", "size": 16, "line": {"color": GREY, "width": 3}}
        if not row.entry.is_baseline:
            look = {"color": hues[others % len(hues)], "symbol": SYMBOLS[others % len(SYMBOLS)], "size": 10}
            look["line"] = {"color": PAPER, "width": 1}
            others += 1
        drawn = [group for group in means if means[group][number] is not None]
        found.append(
            go.Scatter(
                mode="markers",
                name=name,
                x=[means[group][number] for group in drawn],
                y=[labels[group] for group in drawn],
                hovertemplate=f"%{{y}}<br>%{{fullData.name}}: %{{x:{form}}}<extra></extra>",
                marker={**look, "opacity": 0.95},
            )
        )
    return found


FIGURES = (
    Figure(
        slug="means-by-task",
        title="Means by task",
        caption="How good systems are at each task.",
        subjects=("benchmark",),
        drawable=counts_several,
        build=by_task,
    ),
    Figure(
        slug="means-by-domain",
        title="Means by domain",
        caption="How good systems are in each domain.",
        subjects=("benchmark",),
        drawable=counts_several,
        build=by_domain,
    ),
)
