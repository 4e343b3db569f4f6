"""The operator's name, logo and accent colour, wherever the site shows its own."""

from __future__ import annotations

import io
import re
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.test import Client
from PIL import Image

from leaderboard.core.branding import BACKGROUNDS, MIN_CONTRAST, least_contrast, read_accent
from leaderboard.core.checks import check_branding
from tests.factories import make_dataset

pytestmark = pytest.mark.django_db

ALARMING = '<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'


def test_a_site_of_its_own_has_its_name_logo_and_colour(client: Client, settings: Any, tmp_path: Path) -> None:
    make_dataset(slug="ours")
    assert client.get("/site.css").status_code == client.get("/site-logo").status_code == 404
    settings.SITE_NAME, settings.ACCENT = "Library of Alexandria", ("#0b6b57", "#6fd3b8")
    settings.SITE_LOGO = tmp_path / "logo.svg"
    settings.SITE_LOGO.write_text(ALARMING)
    page = client.get("/about-nothing/").content.decode()
    for part in ("Library of Alexandria", 'src="/site-logo"', 'href="/site.css?'):
        assert part in page
    css = client.get("/site.css")
    assert css.headers["Content-Type"] == "text/css; charset=utf-8"
    assert "--link: light-dark(#0b6b57, #6fd3b8)" in css.content.decode()
    logo = client.get("/site-logo")
    assert logo.headers["Content-Type"] == "image/svg+xml"
    assert logo.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert client.get("/favicon.ico").headers["Location"] == "/site-logo"
    assert "Library of Alexandria" in client.get("/datasets/ours/atom.xml").content.decode()
    settings.SITE_LOGO = tmp_path / "logo.png"
    Image.new("RGB", (200, 100), "#ff0000").save(settings.SITE_LOGO)
    picture = Image.open(io.BytesIO(client.get("/datasets/ours/share.png").content))
    assert picture.getpixel((5, 5)) == (0x0B, 0x6B, 0x57)
    assert picture.getpixel((90, 60)) == (255, 0, 0)


def test_members_only_sites_show_it_to_who_signs_in(client: Client, settings: Any, tmp_path: Path) -> None:
    settings.ACCESS, settings.ACCENT, settings.SITE_LOGO = (
        "members",
        ("#0b6b57", "#6fd3b8"),
        tmp_path / "logo.svg",
    )
    settings.SITE_LOGO.write_text(ALARMING)
    assert client.get("/site.css").status_code == client.get("/site-logo").status_code == 200


@pytest.mark.parametrize(
    ("colours", "said"),
    [
        ("#ffd700", ["#ffd700 has a contrast of 1.1 with the page in the light theme"]),
        ("#0b6b57,#0b6b57", ["in the dark theme"]),
        ("#0b6b57", []),
    ],
)
def test_colours_that_cannot_be_read_keep_the_site_from_starting(settings: Any, colours: str, said: list[str]) -> None:
    settings.ACCENT, settings.SITE_LOGO = read_accent(colours), None
    found = check_branding(None)
    assert len(found) == len(said)
    assert all(words in error.msg for words, error in zip(said, found, strict=True))


@pytest.mark.parametrize("text", ["red", "#12345", "#0b6b57,#fff,#000000", "#0b6b57;}body{display:none"])
def test_what_is_no_colour_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as #0b6b57"):
        read_accent(text)


def test_one_colour_is_made_lighter_for_the_dark_theme() -> None:
    accent = read_accent("#1C4F9C")
    assert accent is not None
    assert accent[0] == "#1c4f9c"
    assert least_contrast(accent[1], "dark") >= MIN_CONTRAST


def png(width: int, height: int) -> bytes:
    """The head of a picture of that size, and no pixels."""
    head = b"IHDR" + struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(part) - 4) + part + struct.pack(">I", zlib.crc32(part)) for part in (head, b"IDAT")
    )


def test_pictures_of_boards_do_without_a_logo_that_is_gone(client: Client, settings: Any, tmp_path: Path) -> None:
    make_dataset(slug="ours")
    settings.SITE_LOGO = tmp_path / "logo.png"
    assert client.get("/datasets/ours/share.png").status_code == 200
    settings.SITE_LOGO.write_bytes(png(30_000, 30_000))
    cache.clear()
    assert client.get("/datasets/ours/share.png").status_code == 200


@pytest.mark.parametrize("name", ["", " ", "My\nBoard"])
def test_a_name_that_is_not_one_line_is_refused(settings: Any, name: str) -> None:
    settings.SITE_NAME, settings.ACCENT, settings.SITE_LOGO = name, None, None
    assert [each.msg for each in check_branding(None)] == ["SITE_NAME is empty or not one line."]


def test_a_logo_that_is_none_is_named(settings: Any, tmp_path: Path) -> None:
    settings.ACCENT = None
    for name, content, said in (
        ("missing.svg", None, "not a file"),
        ("logo.gif", b"GIF89a", "neither .svg nor .png"),
        ("logo.png", b"<svg/>", "not PNG"),
        ("broken.png", b"\x89PNG\r\n\x1a\nnonsense", "not PNG"),
        ("large.png", png(5000, 1), "5,000 × 1 pixels; the maximum is 4,096 per side"),
        ("bomb.png", png(30_000, 30_000), "larger than 4,096 pixels"),
        ("logo.svg", b" " * 300_000, "300,000 bytes"),
    ):
        settings.SITE_LOGO = tmp_path / name
        if content is not None:
            settings.SITE_LOGO.write_bytes(content)
        assert said in check_branding(None)[0].msg


def test_the_grounds_of_links_are_those_of_the_style_sheet(settings: Any) -> None:
    css = (settings.BASE_DIR / "static/css/base.css").read_text()
    names = ("paper", "raised", "tint", "tint-strong", "good-tint", "warn-tint", "bad-tint", "calm-tint")
    found = [re.search(rf"--{name}: light-dark\((#\w{{6}}), (#\w{{6}})\);", css) for name in names]
    assert tuple(zip(*(each.groups() for each in found if each), strict=True)) == BACKGROUNDS
