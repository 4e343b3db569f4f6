"""The operator's accent color and logo: parsing, validation, and the style sheet.

Relative luminance and contrast ratio follow WCAG 2.2 (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio).
"""

import re
from pathlib import Path

from PIL import Image

#: Minimum contrast between text and its background (WCAG 2.2, 1.4.3).
MIN_CONTRAST = 4.5
#: Background colors of links in the light and the dark theme: page, raised and tinted areas, and notices
#: (`static/css/base.css`).
BACKGROUNDS = (
    ("#fdfcf9", "#ffffff", "#f4f1ea", "#eae5d9", "#e7f3ec", "#fbf2dc", "#fbeae8", "#e8effa"),
    ("#14161a", "#1a1d22", "#22272e", "#363d48", "#16291f", "#2d2514", "#331a19", "#182437"),
)
THEMES = ("light", "dark")
#: Content types of logos by file ending, and the maximum size in bytes: every page loads the logo.
LOGO_TYPES = {".svg": "image/svg+xml", ".png": "image/png"}
MAX_LOGO_BYTES = 256 * 1024
#: Maximum width and height of a PNG logo in pixels: board images decode the whole file.
MAX_SIDE_PIXELS = 4096


def read_accent(text: str) -> tuple[str, str] | None:
    """Return the accent colors of the light and the dark theme; None if the text is empty.

    A single color applies to the light theme and is lightened for the dark one. Raises ValueError for other text than
    one or two colors such as #0b6b57.
    """
    colours = [part.strip().lower() for part in text.split(",") if part.strip()]
    if not colours:
        return None
    if len(colours) > 2 or not all(re.fullmatch(r"#[0-9a-f]{6}", colour) for colour in colours):
        raise ValueError(
            f"ACCENT_COLOUR is {text!r}. Use a color such as #0b6b57, or two separated by a comma, for the light "
            "and the dark theme."
        )
    dark = colours[-1]
    for share in range(101 if len(colours) == 1 else 0):
        mixed = [round(part + (255 - part) * share / 100) for part in _parts(colours[0])]
        dark = "#" + "".join(f"{part:02x}" for part in mixed)
        if least_contrast(dark, "dark") >= MIN_CONTRAST:
            break
    return colours[0], dark


def least_contrast(colour: str, theme: str) -> float:
    """Return the lowest contrast ratio, 1 to 21, between the color and the backgrounds of the theme."""
    first = _luminance(colour)
    grounds = BACKGROUNDS[THEMES.index(theme)]
    pairs = (sorted((first, _luminance(ground))) for ground in grounds)
    return min((lighter + 0.05) / (darker + 0.05) for darker, lighter in pairs)


def _parts(colour: str) -> list[int]:
    return [int(colour[index : index + 2], 16) for index in (1, 3, 5)]


def _luminance(colour: str) -> float:
    """Return the relative luminance of a color, from 0 (black) to 1 (white)."""
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
        for part in (value / 255 for value in _parts(colour))
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def style_sheet(accent: tuple[str, str]) -> str:
    """Return CSS that sets the accent color; it overrides the site's own tokens because it is outside all layers."""
    colours = "light-dark({}, {})".format(*accent)
    return f":root {{ --link: {colours}; --focus: {colours}; }}\n"


def describe_logo_problem(path: Path) -> str:
    """Describe what is wrong with the logo file; empty if it can be used."""
    if not path.is_file():
        return f"SITE_LOGO is {path}, which is not a file."
    if path.suffix.lower() not in LOGO_TYPES:
        return f"SITE_LOGO is {path}, which is neither .svg nor .png."
    if (size := path.stat().st_size) > MAX_LOGO_BYTES:
        return f"SITE_LOGO is {path}, which has {size:,} bytes; the maximum is {MAX_LOGO_BYTES:,}."
    if path.suffix.lower() == ".png":
        try:
            read_png(path)
        except ValueError as error:
            return f"SITE_LOGO is {path}, {error}."
        return ""
    start = path.read_bytes()[:1024]
    if b"<svg" in start.lower() or b"<?xml" in start:
        return ""
    return f"SITE_LOGO is {path}, but its content is not SVG."


def read_png(path: Path) -> Image.Image:
    """Decode a PNG file. Raises ValueError with the reason if it is missing, broken or too large."""
    try:
        with Image.open(path, formats=["PNG"]) as file:
            if max(file.size) <= MAX_SIDE_PIXELS:
                return file.convert("RGBA")
            width, height = file.size
    except Image.DecompressionBombError as error:
        raise ValueError(f"which is larger than {MAX_SIDE_PIXELS:,} pixels per side") from error
    except (OSError, SyntaxError, ValueError) as error:  # Pillow raises each of them for broken files
        raise ValueError("whose content is not PNG, or is broken") from error
    raise ValueError(f"which has {width:,} × {height:,} pixels; the maximum is {MAX_SIDE_PIXELS:,} per side")
