"""A run's scores by topic beside best, median and worst of its round: for its own team, so not in the registry."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.figures.bars import evenly_spaced, upright_bars, upright_layout
from leaderboard.figures.graph_objects import go
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.rounds.topics import LEAST_OTHERS, Topic

_CAPTION = "A run’s value less the round’s median on each judged query."


def plot(topics: Sequence[Topic], run: str, measure: str, of_round: str) -> Plot:
    """The run's value less the median by query, from the largest down, with the best and the worst as a band."""
    known = [topic for topic in topics if topic.difference is not None]
    if not known:
        return Plot.empty(f"No median is told where fewer than {LEAST_OTHERS} other teams have public runs.")
    ordered = sorted(known, key=lambda topic: -(topic.difference or 0.0))
    drawn, notes = evenly_spaced(len(ordered))
    shown = [ordered[place] for place in drawn]
    places = [place + 1 for place in drawn]
    differences = [round(topic.difference or 0.0, 6) for topic in shown]
    return Plot(
        data=[
            *(
                _line(name, places, _less_median(shown, name), dash)
                for name, dash in (("best", "dot"), ("worst", "dash"))
            ),
            upright_bars(
                places,
                differences,
                measure,
                name="own",
                customdata=[topic.query for topic in shown],
                hovertemplate="%{customdata}<br>%{y:+.3f}<extra></extra>",
            ),
        ],
        layout=upright_layout(len(shown), f"{measure} less the median"),
        table=Table(
            ("Place", "Query", "Own less median", "Best less median", "Worst less median"),
            [
                (place, topic.query, difference, best, worst)
                for place, topic, difference, best, worst in zip(
                    places,
                    shown,
                    differences,
                    _less_median(shown, "best"),
                    _less_median(shown, "worst"),
                    strict=True,
                )
            ],
            ("d", "", "+.3f", "+.3f", "+.3f"),
        ),
        caption=f"{measure} of {run} less the median of {of_round} on each of the {len(ordered):,} judged queries.",
        subtitle=f"{of_round}, {measure}: {run} less the median",
        notes=notes,
    )


def _less_median(topics: Sequence[Topic], name: str) -> list[float]:
    return [round(getattr(topic, name) - (topic.median or 0.0), 6) for topic in topics]


def _line(name: str, places: Sequence[int], values: Sequence[float], dash: str) -> go.Scatter:
    return go.Scatter(
        mode="lines",
        name=name,
        x=places,
        y=values,
        line={"dash": dash, "width": 1.5},
        hovertemplate=f"{name} %{{y:+.3f}}<extra></extra>",
    )


def _of_no_page(request: FigureRequest) -> Plot:
    """Whose run it is decides who may see it: only the page of its own team draws it."""
    return Plot.empty(_CAPTION)


FIGURE = Figure("round-topics", "Beside the median", _CAPTION, (), _of_no_page, wide=True)
