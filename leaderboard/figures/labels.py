"""Placement of names next to the points of a chart.

Labels never overlap. A name that does not fit next to its point is placed further away and connected by a line; if
there are many points, some names are only in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from leaderboard.boards.system.depth import LabelBox

#: Usual height of a picture inside its axes, line height, gap next to a point, and widths of a small letter and other
#: characters in a wide typeface, in pixels.
HEIGHT, LINE_HEIGHT, GAP, SMALL_LETTER_WIDTH, LETTER_WIDTH = 375.0, 15.0, 7.0, 7.0, 8.7


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
    "middle right": (0.0, -0.5, GAP, 0.0),
    "top center": (-0.5, -1.0, 0.0, -GAP),
    "bottom center": (-0.5, 0.0, 0.0, GAP),
    "middle left": (-1.0, -0.5, -GAP, 0.0),
    "top right": (0.0, -1.0, 0.7 * GAP, -0.3 * GAP),
    "bottom right": (0.0, 0.0, 0.7 * GAP, 0.3 * GAP),
    "top left": (-1.0, -1.0, -0.7 * GAP, -0.3 * GAP),
    "bottom left": (-1.0, 0.0, -0.7 * GAP, 0.3 * GAP),
}
#: More distant label positions, the nearest first: horizontal offset of the text's start (right of the point)
#: or end (left of it), and vertical offset, in pixels.
FAR_OFFSETS = [(side, row * 16) for row in (-1, 1, -2, 2, -3, 3, -4, 4, -5, 5, -6, 6, -7, 7) for side in (26, -26)]
#: Maximum number of points for which every name may be placed further away; beyond it only leading names are.
MAX_FAR_POINTS = 25
#: Positions for points on a line, which occupies their right side.
ABOVE_FIRST = sorted(POSITIONS, key=lambda position: not position.startswith("top"))
#: Maximum characters of a leading name for which the picture is too narrow.
MAX_SHORT_NAME = 14


def label_points(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    *,
    priority: Sequence[int] = (),
    log_x: bool = False,
    ends: Sequence[tuple[float, float]] = (),
    sizes: Sequence[float] = (),
    allow_far: bool = True,
) -> list[dict[str, Any]]:
    """Return the options of each label: `text`, `textposition`, and the offset `far` if it is further away.

    `narrow` has the same options for phones. Labels never overlap; one that does not fit has an empty text. The names
    at the positions in `priority` are placed first, and shortened if they do not fit. `ends` has the interval of every
    point, or is empty; `sizes` has the diameters of their marks. If `allow_far`, labels may be further away, which
    requires `far_labels` in the layout.
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
        intervals = zip(y_positions[len(points) :: 2], y_positions[len(points) + 1 :: 2], strict=True)
        interval_boxes = [
            LabelBox(x - 2, min(pair), x + 2, max(pair)) for (x, _), pair in zip(centers, intervals, strict=False)
        ]
        labels: list[dict[str, Any]] = [{"text": "", "textposition": "middle right"} for _ in names]
        for number in dict.fromkeys([*priority, *range(len(names))]):
            is_leading = number in priority
            may_be_far = allow_far and (is_leading or len(names) <= MAX_FAR_POINTS)
            other_boxes = [box for position, box in enumerate(occupied_boxes) if position != number]
            candidates = _label_candidates(names[number], is_leading=is_leading, allow_far=may_be_far)
            for offset, label, may_cross in candidates:
                # Plotly enlarges the mark's size by a quarter when it places a text next to it.
                scale = 1.0 if "far" in label else 1.0 + 1.25 * extras[number] / GAP
                width = picture.letters * text_width(label.get("text", names[number]))
                left = centers[number][0] + offset[0] * width + offset[2] * scale
                top = centers[number][1] + offset[1] * LINE_HEIGHT + offset[3] * scale
                box = LabelBox(left, top, left + width, top + LINE_HEIGHT)
                is_inside = box.left >= 0 and box.right <= picture.width + picture.overhang
                is_inside = is_inside and box.top >= -10 and box.bottom <= HEIGHT + 5
                obstacles = other_boxes if may_cross else [*other_boxes, *interval_boxes]
                if is_inside and not any(map(box.overlaps, obstacles)):
                    labels[number] |= label
                    occupied_boxes.append(box)
                    break
        return labels

    return [{**wide, "narrow": narrow} for wide, narrow in zip(fit_labels(WIDE), fit_labels(NARROW), strict=True)]


def _label_candidates(name: str, *, is_leading: bool, allow_far: bool) -> Iterator[tuple[Offset, dict[str, Any], bool]]:
    """Yield the possible positions of a label by preference, with its options, and whether it may cross intervals.

    A leading name prefers positions above its point. It crosses an interval, or is shortened, rather than omitted.
    """
    for position in ABOVE_FIRST if is_leading else POSITIONS:
        yield POSITIONS[position], {"text": name, "textposition": position}, False
    for x_offset, y_offset in FAR_OFFSETS if allow_far else ():
        yield (-1.0 if x_offset < 0 else 0.0, -0.5, x_offset, y_offset), {"far": (x_offset, y_offset)}, False
    short_name = name if len(name) <= MAX_SHORT_NAME else f"{name[: MAX_SHORT_NAME - 1]}…"
    for text in (name, short_name) if is_leading else ():
        for position in ABOVE_FIRST:
            yield POSITIONS[position], {"text": text, "textposition": position}, True


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
