"""A run's scores by topic beside best, median and worst of its round: for its own team, so not in the registry."""

from __future__ import annotations

from collections.abc import Sequence

from leaderboard.core.measures import better
from leaderboard.figures.model import Figure, FigureRequest, Plot, Table
from leaderboard.figures.palette import BETTER, WORSE
from leaderboard.rounds.topics import LEAST_OTHERS, Topic

#: More bars are thinner than a line.
MOST_BARS = 400
_CAPTION = "A run’s value less the round’s median on each judged query."


def plot(topics: Sequence[Topic], run: str, measure: str, of_round: str) -> Plot:
    """The run's value less the median by query, from the largest down, with the best and the worst as a band."""
    known = [topic for topic in topics if topic.difference is not None]
    if not known:
        return Plot.empty(f"No median is told where fewer than {LEAST_OTHERS} other teams have public runs.")
    ordered = sorted(known, key=lambda topic: -(topic.difference or 0.0))
    step = -(-len(ordered) // MOST_BARS)
    shown = ordered[::step]
    places = list(range(1, len(ordered) + 1, step))
    lower = better(measure) == "lower"
    differences = [round(topic.difference or 0.0, 6) for topic in shown]
    return Plot(
        data=[
            *(
                _line(name, places, _less_median(shown, name), dash)
                for name, dash in (("best", "dot"), ("worst", "dash"))
            ),
            {
                "type": "bar",
                "name": "own",
                "x": places,
                "y": differences,
                "customdata": [topic.query for topic in shown],
                "hovertemplate": "%{customdata}<br>%{y:+.3f}<extra></extra>",
                "marker": {
                    "color": [BETTER if (value > 0) != lower else WORSE for value in differences],
                    "line": {"width": 0},
                },
            },
        ],
        layout={
            "height": 340,
            "bargap": 0.1 if len(shown) < 120 else 0,
            "xaxis": {"title": {"text": "queries, from the largest difference down"}, "showgrid": False},
            "yaxis": {"title": {"text": f"{measure} less the median"}, "zeroline": True},
        },
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
        notes=[f"Of {len(ordered):,} queries {len(shown):,} are drawn, at equal distances in the order."]
        if len(shown) < len(ordered)
        else [],
    )


def _less_median(topics: Sequence[Topic], name: str) -> list[float]:
    return [round(getattr(topic, name) - (topic.median or 0.0), 6) for topic in topics]


def _line(name: str, places: Sequence[int], values: Sequence[float], dash: str) -> dict[str, object]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": list(places),
        "y": list(values),
        "line": {"dash": dash, "width": 1.5},
        "hovertemplate": f"{name} %{{y:+.3f}}<extra></extra>",
    }


def _of_no_page(request: FigureRequest) -> Plot:
    """Whose run it is decides who may see it: only the page of its own team draws it."""
    return Plot.empty(_CAPTION)


FIGURE = Figure("round-topics", "Beside the median", _CAPTION, (), _of_no_page, wide=True)
