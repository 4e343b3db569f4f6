"""Where the names of points stand so that none lies on another; a name without a place is left to the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

#: The picture's assumed size inside its axes, wide and on a phone, in pixels; how far names may reach beyond it at the
#: right; and how large the letters of a phone are, beside those of a wide screen.
WIDE, NARROW, HEIGHT = 560.0, 250.0, 330.0
BEYOND, NARROW_BEYOND, NARROW_LETTERS = 12.0, 4.0, 0.9
#: The widths of a small letter and of others in a wide typeface, the height of a line, and the gap beside a point.
SMALL, LARGE, LINE, GAP = 7.0, 8.7, 15.0, 7.0
#: By preference, plotly's words, and where the text's box begins: shares of its width and height, and gaps.
POSITIONS = {
    "middle right": (0.0, -0.5, 1, 0),
    "top center": (-0.5, -1.0, 0, -1),
    "bottom center": (-0.5, 0.0, 0, 1),
    "middle left": (-1.0, -0.5, -1, 0),
    "top right": (0.0, -1.0, 0.7, -0.3),
    "bottom right": (0.0, 0.0, 0.7, 0.3),
    "top left": (-1.0, -1.0, -0.7, -0.3),
    "bottom left": (-1.0, 0.0, -0.7, 0.3),
}
#: For points on a line, whose right is taken by it.
ABOVE_FIRST = sorted(POSITIONS, key=lambda position: not position.startswith("top"))


class _Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: _Box) -> bool:
        """Whether the two overlap."""
        return (
            self.left < other.right
            and other.left < self.right
            and self.top < other.bottom
            and other.top < self.bottom
        )


class Labels(NamedTuple):
    """By point its text, empty where there is no room, and where it stands."""

    texts: list[str]
    positions: list[str]


def placed(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    size: tuple[float, float],
    *,
    first: Sequence[int] = (),
    log_x: bool = False,
    beyond: float = BEYOND,
    letters: float = 1.0,
) -> Labels:
    """Labels for points in a picture of this size; those at the places `first` choose first.

    `beyond` is how far they may reach over its right edge, `letters` how large they are.
    """
    scaled = _scaled(points, size, log_x)
    taken = [_Box(x - GAP + 1, y - GAP + 1, x + GAP - 1, y + GAP - 1) for x, y in scaled]
    texts, positions = [""] * len(names), ["middle right"] * len(names)
    for number in dict.fromkeys([*first, *range(len(names))]):
        for position in ABOVE_FIRST if number in first else POSITIONS:
            box = _box(letters * width_of(names[number]), scaled[number], position)
            outside = (
                box.left < 0 or box.right > size[0] + beyond or box.top < -10 or box.bottom > size[1] + 5
            )
            others = (other for place, other in enumerate(taken) if place != number)
            if not outside and not any(box.meets(other) for other in others):
                texts[number], positions[number] = names[number], position
                taken.append(box)
                break
    return Labels(texts, positions)


def labelled(
    names: Sequence[str],
    points: Sequence[tuple[float, float]],
    *,
    first: Sequence[int] = (),
    log_x: bool = False,
    width: float = WIDE,
) -> list[dict[str, Any]]:
    """By point, what its trace says of its label: `text` and `textposition`, and others on a phone."""
    wide = placed(names, points, (width, HEIGHT), first=first, log_x=log_x)
    narrow = placed(
        names,
        points,
        (NARROW, HEIGHT),
        first=first,
        log_x=log_x,
        beyond=NARROW_BEYOND,
        letters=NARROW_LETTERS,
    )
    return [
        {"text": text, "textposition": position, "narrow": {"text": less, "textposition": there}}
        for text, position, less, there in zip(
            wide.texts, wide.positions, narrow.texts, narrow.positions, strict=True
        )
    ]


def texts_of(labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What the trace of these points says of their labels, and what it says on a phone."""
    return {**_texts(labels), "meta": {"narrow": _texts([label["narrow"] for label in labels])}}


def _texts(labels: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    return {key: [label[key] for label in labels] for key in ("text", "textposition")}


def width_of(name: str) -> float:
    """How wide a name is at most on a wide screen, in pixels."""
    return sum(SMALL if sign.islower() or sign in " .,-()[]" else LARGE for sign in name)


def _box(width: float, point: tuple[float, float], position: str) -> _Box:
    across, down, right, below = POSITIONS[position]
    left, top = point[0] + across * width + right * GAP, point[1] + down * LINE + below * GAP
    return _Box(left, top, left + width, top + LINE)


def _scaled(
    points: Sequence[tuple[float, float]], size: tuple[float, float], log_x: bool
) -> list[tuple[float, float]]:
    """The points in pixels from the upper left, as axes with a margin of a twentieth put them."""
    xs = [math.log10(x) if log_x else x for x, _ in points]
    ys = [y for _, y in points]
    return [(_within(x, xs) * size[0], (1 - _within(y, ys)) * size[1]) for x, y in zip(xs, ys, strict=True)]


def _within(number: float, numbers: Sequence[float]) -> float:
    low, high = min(numbers), max(numbers)
    return 0.5 if low == high else 0.06 + 0.88 * (number - low) / (high - low)
