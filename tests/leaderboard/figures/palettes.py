"""The colours of the style sheets, as both schemes have them, and how far two of them differ."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from django.conf import settings

Color = tuple[float, float, float]


def tokens() -> dict[str, tuple[Color, Color]]:
    """By custom property its colour in the light and in the dark scheme."""
    folder = Path(settings.BASE_DIR) / "static" / "css"
    text = "".join((folder / name).read_text() for name in ("base.css", "figures.css"))
    found = re.findall(r"(--[\w-]+): light-dark\(#([0-9a-f]{6}), #([0-9a-f]{6})\)", text)
    return {f"var({name})": (_rgb(light), _rgb(dark)) for name, light, dark in found}


def contrast(one: Color, other: Color) -> float:
    """The contrast of two colours after WCAG 2.2, 1 to 21."""
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def between(scale: Sequence[Color], share: float) -> Color:
    """The colour at a share of a scale of evenly spaced ones, as Plotly takes it."""
    place = share * (len(scale) - 1)
    below = min(int(place), len(scale) - 2)
    low, high, part = scale[below], scale[below + 1], place - below
    return (
        low[0] + part * (high[0] - low[0]),
        low[1] + part * (high[1] - low[1]),
        low[2] + part * (high[2] - low[2]),
    )


def _rgb(text: str) -> Color:
    return int(text[:2], 16) / 255, int(text[2:4], 16) / 255, int(text[4:], 16) / 255


def _luminance(color: Color) -> float:
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in color)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
