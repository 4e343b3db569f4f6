"""Placement of names next to the points of a chart.

Labels never overlap each other, points, or lines. A name that does not fit next to its point is placed further away and
connected by a line; if there are many names, some are only in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from leaderboard.boards.system.depth import LabelBox

#: Usual height of a picture inside its axes, line height, gap next to a point, and widths of a small letter and other
#: characters in a wide typeface, in pixels.
HEIGHT, LINE_HEIGHT, GAP, SMALL_LETTER_WIDTH, LETTER_WIDTH = 360.0, 16.0, 7.0, 7.0, 8.7


#: Diameter of a usual point in pixels.
USUAL_MARK = 11.0


class PictureWidth(NamedTuple):
    """Assumptions about the width of a picture.

    `width` is the width inside the axes in pixels, and `overhang` is how far names may extend beyond the right edge.
    `letters` and `marks` are relative sizes.
    """

    width: float
    overhang: float
    letters: float
    marks: float

    def mark_size(self, size: float) -> float:
        """Scale a mark's diameter on a wide screen to this width, but not below `USUAL_MARK`."""
        return min(size, max(USUAL_MARK, round(size * self.marks, 1)))


WIDE, NARROW = PictureWidth(660.0, 12.0, 1.0, 1.0), PictureWidth(290.0, 4.0, 0.9, 0.6)
#: Distance of a label's upper left corner from its point: shares of its width and height, and pixels.
Offset = tuple[float, float, float, float]
#: Plotly's words for the positions next to a point, in order of preference.
POSITIONS: dict[str, Offset] = {
    "top center": (-0.5, -1.0, 0.0, -GAP),
    "top right": (0.0, -1.0, 0.7 * GAP, -0.3 * GAP),
    "top left": (-1.0, -1.0, -0.7 * GAP, -0.3 * GAP),
    "middle right": (0.0, -0.5, GAP, 0.0),
    "bottom center": (-0.5, 0.0, 0.0, GAP),
    "middle left": (-1.0, -0.5, -GAP, 0.0),
    "bottom right": (0.0, 0.0, 0.7 * GAP, 0.3 * GAP),
    "bottom left": (-1.0, 0.0, -0.7 * GAP, 0.3 * GAP),
}
#: More distant label positions, the nearest first: horizontal offset of the text's start (right of the point)
#: or end (left of it), and vertical offset, in pixels.
FAR_OFFSETS = [(side, row * 16) for row in (-1, 1, -2, 2, -3, 3, -4, 4) for side in (26, -26)]
#: Maximum number of names that may be far from their points or shortened, and maximum length of a shortened name.
MAX_FAR_NAMES, MAX_SHORT_NAME = 25, 14


def label_points(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    label_order: Sequence[int],
    *,
    lines: Sequence[tuple[Sequence[int], int]] = (),
    log_x: bool = False,
    ends: Sequence[tuple[float, float]] = (),
    sizes: Sequence[float] = (),
) -> list[dict[str, Any]]:
    """Return the options of each label: `text`, `textposition`, and the offset `far` if it is further away.

    `narrow` has the same options for phones. Only the names at the positions `label_order` are placed, in this order;
    one that does not fit has an empty text. `lines` has, for each stepped line, the positions of its points, and
    of a point above or below its right end. `ends` has the intervals of all points, or is empty; `sizes` has the
    diameters of their marks. The layout needs `far_labels`.
    """
    x_shares = _axis_positions([math.log10(x) if log_x else x for x, _ in points])
    y_shares = _axis_positions([*(y for _, y in points), *(end for pair in ends for end in pair)])

    def fit_labels(picture: PictureWidth) -> list[dict[str, Any]]:
        """Return the label options for one picture width. Each label gets its first position without overlap."""
        y_positions = [(1 - share) * HEIGHT for share in y_shares]
        centers = [(share * picture.width, top) for share, top in zip(x_shares, y_positions, strict=False)]
        extras = [(picture.mark_size(size) - USUAL_MARK) / 2 for size in sizes or [USUAL_MARK] * len(names)]
        occupied_boxes = [
            # A name may touch the corners of the box around a large mark.
            LabelBox(x - half, y - half, x + half, y + half)
            for (x, y), extra in zip(centers, extras, strict=False)
            for half in [GAP - 1 + 0.8 * extra]
        ]
        for line, end in lines:
            occupied_boxes += _step_boxes([centers[number] for number in line], centers[end][0])
        intervals = zip(y_positions[len(points) :: 2], y_positions[len(points) + 1 :: 2], strict=True)
        interval_boxes = [
            LabelBox(x - 2, min(pair), x + 2, max(pair)) for (x, _), pair in zip(centers, intervals, strict=False)
        ]
        labels: list[dict[str, Any]] = [{"text": "", "textposition": "middle right"} for _ in names]
        fixed_count = len(occupied_boxes)
        for number in dict.fromkeys(label_order):
            other_boxes = [box for position, box in enumerate(occupied_boxes) if position != number]
            for offset, label, crosses in _label_candidates(names[number], has_room=len(label_order) <= MAX_FAR_NAMES):
                # Plotly enlarges the mark's size by a quarter when it places a text next to it.
                scale = 1.0 if "far" in label else 1.0 + 1.25 * extras[number] / GAP
                width = picture.letters * text_width(label.get("text", names[number]))
                left = centers[number][0] + offset[0] * width + offset[2] * scale
                top = centers[number][1] + offset[1] * LINE_HEIGHT + offset[3] * scale
                box = LabelBox(left, top, left + width, top + LINE_HEIGHT)
                right_edge = picture.width + picture.overhang
                is_inside = 0 <= left <= right_edge - width and -10 <= top <= HEIGHT + 5 - LINE_HEIGHT
                obstacles = other_boxes if crosses else [*other_boxes, *interval_boxes]
                connector = _connector_boxes(centers[number], label.get("far", (0.0, 0.0)))
                is_crossing = any(one.overlaps(other) for one in connector for other in occupied_boxes[fixed_count:])
                if is_inside and not is_crossing and not any(map(box.overlaps, obstacles)):
                    labels[number] |= label
                    occupied_boxes += [box, *connector]
                    break
        return labels

    return [{**wide, "narrow": narrow} for wide, narrow in zip(fit_labels(WIDE), fit_labels(NARROW), strict=True)]


def _step_boxes(corners: Sequence[tuple[float, float]], right_end: float) -> Iterator[LabelBox]:
    """Yield the area of a stepped line, which is horizontal and then vertical, from each point to the next."""
    for (x, y), (next_x, next_y) in pairwise([*corners, (right_end, corners[-1][1])]):
        yield LabelBox(x, y - 1, next_x, y + 1)
        yield LabelBox(next_x - 1, min(y, next_y), next_x + 1, max(y, next_y))


def _connector_boxes(center: tuple[float, float], offset: tuple[float, float]) -> list[LabelBox]:
    """Return areas along the line from near a point to a label further away; empty without an `offset`."""
    (x, y), (x_offset, y_offset) = center, offset
    spots = [(x + share / 8 * x_offset, y + share / 8 * y_offset) for share in range(2, 8)]
    return [LabelBox(left - 1, top - 1, left + 1, top + 1) for left, top in spots] if any(offset) else []


def _label_candidates(name: str, *, has_room: bool) -> Iterator[tuple[Offset, dict[str, Any], bool]]:
    """Yield the possible positions of a label by preference, with its options, and whether it may cross intervals.

    If the picture `has_room`, a name is further away, crosses an interval, or is shortened rather than omitted.
    """
    for position, offset in POSITIONS.items():
        yield offset, {"text": name, "textposition": position}, False
    for x_offset, y_offset in FAR_OFFSETS if has_room else ():
        yield (-1.0 if x_offset < 0 else 0.0, -0.5, x_offset, y_offset), {"far": (x_offset, y_offset)}, False
    short_name = name if len(name) <= MAX_SHORT_NAME else f"{name[: MAX_SHORT_NAME - 1]}…"
    for text in (name, short_name) if has_room else ():
        for position, offset in POSITIONS.items():
            yield offset, {"text": text, "textposition": position}, True


def text_width(name: str) -> float:
    """Return an upper bound of a name's width on a wide screen, in pixels."""
    return sum(SMALL_LETTER_WIDTH if sign.islower() or sign in " .,-()[]" else LETTER_WIDTH for sign in name)


def far_labels(
    names: Sequence[str],
    points: Sequence[tuple[Any, float]],
    labels: Sequence[Mapping[str, Any]],
    *,
    log_x: bool = False,
) -> dict[str, Any]:
    """Return the layout options that draw the labels with a `far` offset as annotations, also on phones."""
    style = {"arrowhead": 0, "arrowwidth": 1, "arrowcolor": "var(--ink-soft)", "standoff": 6}

    def annotations(width_labels: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return an annotation with a line to its point for each label that has a `far` offset."""
        lines = []
        for name, (x, y), label in zip(names, points, width_labels, strict=True):
            if "far" in label:
                x_offset, y_offset = label["far"]
                anchor = "left" if x_offset > 0 else "right"
                text = {"text": name, "ax": x_offset, "ay": y_offset, "xanchor": anchor}
                lines.append({"x": math.log10(x) if log_x else x, "y": y, **text, **style})
        return lines

    narrow_layout = {"annotations": annotations([label["narrow"] for label in labels])}
    return {"annotations": annotations(labels), "meta": {"narrow": narrow_layout}}


def _axis_positions(numbers: Sequence[float]) -> list[float]:
    """Return each number's position between minimum and maximum, on axes with a margin of 6%."""
    low, high = min(numbers), max(numbers)
    return [0.5 if low == high else 0.06 + 0.88 * (number - low) / (high - low) for number in numbers]
