"""In-domain against zero-shot: whether what is good where it was trained is good elsewhere (BEIR, finding 1)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from leaderboard.boards.facts import Member
from leaderboard.boards.model import Row
from leaderboard.figures.axes import linear_axis, sentence
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.points import ChartPoint, traces_by_architecture
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


class _Sides(NamedTuple):
    """The dataset that systems were trained on, those where they were not, and the rows that have both."""

    trained: Member
    others: Sequence[Member]
    rows: Sequence[Row]
    left_out: Sequence[Row]


def build(request: FigureRequest) -> Plot:
    """By system its score on the dataset that most were trained on, and its mean over the others, none of them seen."""
    if request.state.zero_shot:
        return Plot.empty("This view shows zero-shot values only: none of them is in-domain.")
    page = request.benchmark_page
    sides = _sides(datasets_of(page, counted=False), present(page.board))
    if sides is None or not sides.rows:
        return Plot.empty(
            "No system of this view was trained on one of these datasets and scored on all others."
        )
    rows, names = list(sides.rows), names_of(sides.rows)
    form, measure = score_format(rows), page.board.measure
    across = f"{sides.trained.measure(measure)} on {sides.trained.facts.name}"
    up = f"mean {measure} over the other {len(sides.others)}"
    points = [
        ChartPoint(row, name, x, y, (f"{across}: {x:{form}}", f"{up}: {y:{form}}"))
        for row, name in zip(rows, names, strict=True)
        if (x := value(row, sides.trained.slug)) is not None and (y := mean(row, sides.others)) is not None
    ]
    trained = [MARK in row[sides.trained.slug].mark for row in rows]
    traces, labels = traces_by_architecture(points)
    return Plot(
        data=traces,
        layout=go.Layout(
            height=420,
            xaxis=linear_axis(sentence(across), [point.x for point in points]),
            yaxis=linear_axis(sentence(up), [point.y for point in points]),
            **labels,
        ),
        table=Table(
            ("System", sentence(across), sentence(up), f"Trained on {sides.trained.facts.name}"),
            [
                (point.name, point.x, point.y, _trained(point.row, seen=seen))
                for point, seen in zip(points, trained, strict=True)
            ],
            ("", form, form, ""),
        ),
        caption=f"{sentence(across)}, on which {sum(trained)} of these {len(points)} systems were trained, against "
        f"{up} datasets of {titled(page.board)}, for which none declares training labels. "
        f"{describe_kind(rows[0].ranked_in).capitalize()} only.",
        subtitle=f"{page.board.title}, {measure}, {describe_kind(rows[0].ranked_in)}",
        notes=[
            *_not_zero_shot(points),
            *_correlation(points),
            *left_out_note(sides.left_out, "for want of scores or trained on others, too"),
        ],
    )


def _sides(places: Sequence[Member], rows: Sequence[Row]) -> _Sides | None:
    """The dataset with most in-domain values, and the counted others. Only rows of one kind."""
    counts = Counter(place.slug for row in rows for place in places if MARK in row[place.slug].mark)
    if not counts:
        return None
    trained = next(place for place in places if place.slug == counts.most_common(1)[0][0])
    others = [place for place in places if place.counted and place != trained]
    of_kind, _ = rows_of_kind([row for row in rows if value(row, trained.slug) is not None])
    fitting = [
        row
        for row in of_kind
        if mean(row, others) is not None and not any(MARK in row[place.slug].mark for place in others)
    ]
    fits = {id(row) for row in fitting}
    return _Sides(trained, others, fitting, [row for row in of_kind if id(row) not in fits])


def _has(row: Row, exposure: Entry.Training) -> bool:
    """Whether any of its results has this exposure."""
    exposures = row.facets.get("training", ())
    return exposure.value in ((exposures,) if isinstance(exposures, str) else exposures)


def _trained(row: Row, *, seen: bool) -> str:
    return "yes" if seen else "not declared" if _has(row, Entry.Training.UNDECLARED) else "no"


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
