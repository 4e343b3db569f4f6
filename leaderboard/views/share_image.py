"""Preview images of boards for shared links."""

import logging
import unicodedata
from functools import cache
from itertools import groupby
from operator import itemgetter
from textwrap import wrap

from django.conf import settings
from django.contrib.staticfiles import finders
from PIL import Image, ImageDraw, ImageFont

from leaderboard.boards.model import Board
from leaderboard.core.branding import read_png
from leaderboard.core.text.bibtex import to_latin
from leaderboard.core.text.numbers import MINUS, format_value, signed_percent

logger = logging.getLogger(__name__)

#: Image size and margin in pixels, as Open Graph and Twitter recommend.
WIDTH, HEIGHT, MARGIN = 1200, 630, 72
PAPER, INK, MUTED_INK, RULE, BLUE = "#fdfcf9", "#1a1b1e", "#55585f", "#e0dbd0", "#1c4f9c"
ROWS, LINES = 3, 4
#: Files of one typeface by script, in the order in which characters are looked up.
FONTS = ("inter", "inter-latin-ext", "inter-greek", "inter-cyrillic")
Fonts = tuple[ImageFont.FreeTypeFont, ...]
#: Columns of the difference from the baseline on dataset and benchmark boards.
DIFFERENCES = ("relative", "average-relative")


def draw_board(board: Board) -> Image.Image:
    """Return an image of the site's name, the board's title and verdict, and its first ranked rows."""
    image = Image.new("RGB", (WIDTH, HEIGHT), PAPER)
    draw = ImageDraw.Draw(image)
    accent = settings.ACCENT[0] if settings.ACCENT else BLUE
    draw.rectangle((0, 0, WIDTH, 12), fill=accent)
    _write(draw, (MARGIN + _draw_logo(image), 48), settings.SITE_NAME, 28, accent, bold=True)
    size = 56 if len(board.title) < 32 else 38
    _write(draw, (MARGIN, 96), board.title, size, INK, bold=True)
    verdict = board.summary.text if board.summary else "No ranked result yet."
    for number, line in enumerate(wrap(verdict, 86, max_lines=LINES, placeholder=" ...")):
        _write(draw, (MARGIN, 182 + 36 * number), line, 24, MUTED_INK)
    for place, row in enumerate([row for row in board.rows if row.rank is not None][:ROWS]):
        top = 342 + 82 * place
        score = row.value(board.sort)
        ratio = next((value for key in DIFFERENCES if isinstance(value := row.value(key), float)), None)
        difference = "baseline" if row.entry.is_baseline else signed_percent(ratio) if ratio else ""
        draw.line((MARGIN, top - 14, WIDTH - MARGIN, top - 14), fill=RULE, width=2)
        _write(draw, (MARGIN, top), row.rank_label, 34, MUTED_INK)
        _write(draw, (MARGIN + 70, top), row.entry.system, 34, INK, limit=WIDTH - MARGIN - 390)
        score_text = format_value(score, 3) if isinstance(score, float) else ""
        _write(draw, (WIDTH - MARGIN - 210, top), score_text, 34, INK, bold=True, align_right=True)
        _write(draw, (WIDTH - MARGIN, top), difference, 34, MUTED_INK, align_right=True)
    return image


def _draw_logo(image: Image.Image) -> int:
    """Draw the operator's logo if it is a PNG file. Return the offset of the name in pixels, 0 without a logo."""
    if settings.SITE_LOGO is None or settings.SITE_LOGO.suffix.lower() != ".png":
        return 0
    try:
        logo = read_png(settings.SITE_LOGO)
    except ValueError as error:  # The file was removed or replaced after startup.
        logger.warning("Board images omit the logo: SITE_LOGO is a file %s.", error)
        return 0
    logo.thumbnail((240, 40))
    image.paste(logo, (MARGIN, 42), logo)
    return logo.width + 16


def _write(
    draw: ImageDraw.ImageDraw, position: tuple[float, float], text: str, size: int, colour: str, *,
    bold: bool = False, align_right: bool = False, limit: int = WIDTH - MARGIN,
) -> None:  # fmt: skip
    """Draw a line of text that starts or, with `align_right`, ends at `position`; text beyond `limit` is truncated."""
    fonts = _fonts(size, bold=bold)
    # Remove line breaks and direction marks, because names are user-provided.
    text = "".join(letter for letter in " ".join(text.split()) if letter.isprintable())
    while (width := sum(draw.textlength(part, font) for font, part in _parts(fonts, text))) > limit - position[0]:
        if align_right:
            break
        text = text.rstrip(".")[:-1].rstrip() + "..."
    x = position[0] - width if align_right else position[0]
    for font, part in _parts(fonts, text):
        draw.text((x, position[1]), part, colour, font, anchor="la")
        x += draw.textlength(part, font)


def _parts(fonts: Fonts, text: str) -> list[tuple[ImageFont.FreeTypeFont, str]]:
    """Split text into parts, each with a font that has all its characters."""
    letters = groupby((_letter(fonts, letter) for letter in text), key=itemgetter(0))
    return [(font, "".join(character for _, character in part)) for font, part in letters]


@cache
def _fonts(size: int, *, bold: bool) -> Fonts:
    """Return the site's fonts from `make assets`, or Pillow's default font, which has only ASCII characters."""
    files = [file for name in FONTS if (file := finders.find(f"fonts/{name}.woff2"))]
    if not files:
        font = ImageFont.load_default(size)
        assert isinstance(font, ImageFont.FreeTypeFont)  # Pillow's wheels include FreeType.
        return (font,)
    fonts = tuple(ImageFont.truetype(file, size, layout_engine=ImageFont.Layout.BASIC) for file in files)
    for font in fonts:
        font.set_variation_by_axes([650 if bold else 400])
    return fonts


_ASCII_FORMS = {MINUS: "-", "–": "-", "—": "-", "…": "...", "’": "'", "×": "x", "≤": "<=", "≥": ">="}


@cache
def _letter(fonts: Fonts, letter: str) -> tuple[ImageFont.FreeTypeFont, str]:
    """Return the first font that has the character or, if none does, the first font with a similar character."""
    for font in fonts:
        if letter == " " or bytes(font.getmask(letter)) != bytes(font.getmask("\uffff")):
            return font, letter
    fallback = unicodedata.normalize("NFKD", _ASCII_FORMS.get(letter) or to_latin(letter))
    return fonts[0], fallback.encode("ascii", "ignore").decode() or "?"
