"""In-domain against zero-shot: whether what is good where it was trained is good elsewhere (BEIR, finding 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

from leaderboard.boards.facts import Member
from leaderboard.boards.model import Row
from leaderboard.figures.drawing import go, linear_axis, sentence
from leaderboard.figures.model import Figure, FigureRequest, Plot
from leaderboard.figures.points import ChartPoint, points_table, traces_by_architecture
from leaderboard.figures.rows import (
    counts_several,
    datasets_of,
    describe_kind,
    left_out_note,
    list_names,
    mean,
    names_of,
    present,
    rows_of_kind,
    score_format,
    titled,
    value,
)
from leaderboard.models import Entry

#: What marks values of systems that were trained on the dataset.
MARK = "‡"
#: Rank correlation compares all pairs: of more systems it says nothing that the picture does not.
MOST_COMPARED = 200


def build(request: FigureRequest) -> Plot:
    """By system its score on the dataset that most were trained on, and its mean over the others, none of them seen."""
    if request.state.zero_shot:
        return Plot.empty("This view shows zero-shot values only: none of them is in-domain.")
    board, datasets = request.benchmark_page.board, datasets_of(request.benchmark_page, counted=False)
    every = present(board)
    counts = Counter(member.slug for row in every for member in datasets if _is_marked(row, member))
    most = counts.most_common(1)[0][0] if counts else None
    trained_on = next((member for member in datasets if member.slug == most), None)
    others = [member for member in datasets if member.counted and member != trained_on]
    of_kind: list[Row] = []
    if trained_on is not None:
        of_kind, _ = rows_of_kind([row for row in every if value(row, trained_on.slug) is not None])
    rows: list[Row] = []
    left_out: list[Row] = []
    for row in of_kind:
        fits = mean(row, others) is not None and not any(_is_marked(row, member) for member in others)
        (rows if fits else left_out).append(row)
    if trained_on is None or not rows:
        return Plot.empty(
            "No system of this view was trained on one of these datasets and scored on all others."
        )
    form, measure, kind = score_format(rows), board.measure, describe_kind(rows[0].ranked_in)
    across = f"{trained_on.measure(measure)} on {trained_on.facts.name}"
    up = f"mean {measure} over the other {len(others)}"
    points = [
        ChartPoint(row, name, x, y, (f"{across}: {x:{form}}", f"{up}: {y:{form}}"))
        for row, name in zip(rows, names_of(rows), strict=True)
        if (x := value(row, trained_on.slug)) is not None and (y := mean(row, others)) is not None
    ]
    trained = [_training(point.row, trained_on) for point in points]
    traces, labels = traces_by_architecture(points)
    x_axis = linear_axis(sentence(across), [point.x for point in points])
    y_axis = linear_axis(sentence(up), [point.y for point in points])
    return Plot(
        data=traces,
        layout=go.Layout(height=420, xaxis=x_axis, yaxis=y_axis, **labels),
        table=points_table(
            points,
            (sentence(across), form),
            (sentence(up), form),
            (f"Trained on {trained_on.facts.name}", trained),
        ),
        caption=f"{sentence(across)}, on which {trained.count('yes')} of these {len(points)} systems were trained, "
        f"against {up} datasets of {titled(board)}, for which none declares training labels. "
        f"{kind.capitalize()} only.",
        subtitle=f"{board.title}, {measure}, {kind}",
        notes=[
            *_not_zero_shot(points),
            *_correlation(points),
            *left_out_note(left_out, "for want of scores or trained on others, too"),
        ],
    )


def _is_marked(row: Row, dataset: Member) -> bool:
    return MARK in row[dataset.slug].mark


def _has(row: Row, exposure: Entry.Training) -> bool:
    """Whether any of its results has this exposure."""
    exposures = row.facets.get("training", ())
    return exposure.value in ((exposures,) if isinstance(exposures, str) else exposures)


def _training(row: Row, dataset: Member) -> str:
    if _is_marked(row, dataset):
        return "yes"
    return "not declared" if _has(row, Entry.Training.UNDECLARED) else "no"


def _not_zero_shot(points: Sequence[ChartPoint]) -> list[str]:
    """Notes on systems whose means are not known to be zero-shot."""
    notes = []
    for exposure, what in (
        (Entry.Training.ADAPTED, "Adapted to some of these corpora, without labels"),
        (Entry.Training.UNDECLARED, "Without a declaration of what they were trained on"),
    ):
        if names := [point.name for point in points if _has(point.row, exposure)]:
            notes.append(f"{what}: {list_names(names)}.")
    return notes


def _correlation(points: Sequence[ChartPoint]) -> list[str]:
    """Kendall's τ-a of the two orders: pairs in the same order less those in the other, over all pairs."""
    number = len(points)
    if not 3 <= number <= MOST_COMPARED:
        return []
    x, y = (np.subtract.outer(axis, axis) for axis in ([one.x for one in points], [one.y for one in points]))
    tau = np.sign(x * y).sum() / (number * (number - 1))
    return [f"Kendall's τ of the two orders is {tau:.2f} over {number} systems (1: the same, 0: unrelated)."]


IN_DOMAIN = Figure(
    slug="in-domain",
    title="In-domain and zero-shot",
    caption="Scores where systems were trained, against their mean where they were not.",
    subjects=("benchmark",),
    build=build,
    drawable=counts_several,
)
