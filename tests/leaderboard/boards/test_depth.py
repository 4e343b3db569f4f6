"""A re-ranker by depth: what is drawn stands in the table as well."""

from __future__ import annotations

import re
from itertools import combinations, pairwise
from xml.etree import ElementTree

import pytest
from django.template.loader import render_to_string

from leaderboard.boards.system.depth import BYTES, DEPTH, DepthPoint, depth_series, variant_depth

POINTS = [
    DepthPoint(100, 0.71, 1234.5),
    DepthPoint(10, 0.61, 130.0),
    DepthPoint(50, 0.69, 640.0),
    DepthPoint(200, 0.70, 2400.0),
]


@pytest.mark.parametrize(
    ("label", "depth"),
    [
        ("top 100", 100),
        ("seed 1, top 50", 50),
        ("", None),
        ("top", None),
        ("stop 10", None),
        ("top 10 b", None),
    ],
)
def test_the_depth_is_read_from_the_label(label: str, depth: int | None) -> None:
    assert variant_depth(label, {}) == (depth and (DEPTH, depth))


@pytest.mark.parametrize(
    ("label", "facts", "size"),
    [
        ("256 dimensions", {"bytes_per_document": 1024.0}, 1024.0),
        ("all dimensions", {"bytes_per_document": 96}, 96.0),
        ("256 dimensions", {}, None),
        ("in 256 dimensions b", {"bytes_per_document": 1024.0}, None),
        ("", {"bytes_per_document": 1024.0}, None),
    ],
)
def test_dimensions_stand_at_the_bytes_of_a_document(label: str, facts: dict[str, float], size: float) -> None:
    assert variant_depth(label, facts) == (size and (BYTES, size))


def test_bytes_are_drawn_at_equal_distances_where_they_double() -> None:
    points = [DepthPoint(size, 0.3 + place / 100) for place, size in enumerate((256.0, 512.0, 1024.0, 2048.5))]
    series = depth_series("nDCG@10", points, axis=BYTES)
    assert series is not None
    assert [row.depth for row in series.rows] == ["256", "512", "1,024", "2,048.5"]
    across = [float(x) for x in re.findall(r'<circle[^>]*cx="([^"]+)"', series.charts)]
    steps = [after - before for before, after in pairwise(across)]
    assert max(steps) - min(steps) < 0.2
    page = render_to_string("leaderboard/_depth.html", {"depth": series})
    assert "Bytes per document" in page
    assert "by bytes per document" in page


def test_rows_are_in_order_of_depth_with_three_digits_of_latency() -> None:
    series = depth_series("nDCG@10", POINTS)
    assert series is not None
    assert [tuple(row) for row in series.rows] == [
        ("10", "0.610", "130"),
        ("50", "0.690", "640"),
        ("100", "0.710", "1,234"),
        ("200", "0.700", "2,400"),
    ]


def test_the_charts_are_well_formed_and_say_what_they_show() -> None:
    series = depth_series("nDCG@10", POINTS)
    assert series is not None
    drawn = ElementTree.fromstring(f"<p>{series.charts}</p>")
    effectiveness, latency = drawn
    assert effectiveness.get("aria-label", "").startswith("nDCG@10 by depth: 0.610 at 10, 0.690 at 50")
    heights = [float(circle.get("cy", "")) for circle in latency.iter("circle")]
    assert heights == sorted(heights, reverse=True)
    assert all(0 <= float(number) <= 320 for number in re.findall(r'c[xy]="([^"]+)"', series.charts))
    assert "style" not in series.charts


@pytest.mark.parametrize(
    "values", [(0.61, 0.69, 0.71, 0.70), (0.1, 0.2, 0.3, 0.5), (0.7, 0.4, 0.39, 0.1), (0.5, 0.5, 0.5, 0.5)]
)
def test_no_line_crosses_a_label_and_no_label_another(values: tuple[float, ...]) -> None:
    depths = (10, 50, 100, 200)
    points = [DepthPoint(depth, value, 11.0 * depth) for depth, value in zip(depths, values, strict=True)]
    series = depth_series("nDCG@10", points)
    assert series is not None
    for chart in ElementTree.fromstring(f"<p>{series.charts}</p>"):
        [drawn] = [element.get("points", "") for element in chart.iter("polyline")]
        line = [tuple(map(float, point.split(","))) for point in drawn.split()]
        boxes = []
        for label in chart.iter("text"):
            if label.get("class") == "chart-label":
                x, y = float(label.get("x", "")), float(label.get("y", ""))
                half = 3 * len(label.text or "")
                boxes.append((x - half, y - 8, x + half, y))
        assert len(boxes) >= 3
        for left, top, right, bottom in boxes:
            for (x0, y0), (x1, y1) in pairwise(line):
                on_line = [(x0 + (x1 - x0) * step / 200, y0 + (y1 - y0) * step / 200) for step in range(201)]
                assert not any(left < x < right and top < y < bottom for x, y in on_line)
        for one, other in combinations(boxes, 2):
            assert one[2] <= other[0] or other[2] <= one[0] or one[3] <= other[1] or other[3] <= one[1]


def test_without_times_there_is_one_chart_and_no_column_of_them() -> None:
    series = depth_series("AP", [DepthPoint(10, 0.5), DepthPoint(20, 0.5)])
    assert series is not None
    assert series.charts.count("<svg") == 1
    page = render_to_string("leaderboard/_depth.html", {"depth": series})
    assert "0.500" in page
    assert "Latency" not in page


def test_one_depth_is_no_series() -> None:
    assert depth_series("AP", [DepthPoint(10, 0.5)]) is None
