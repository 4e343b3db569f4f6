"""One format of dates for people, in pages and mails, and another for machines."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from django.conf import settings
from django.contrib.admin.templatetags.admin_list import display_for_value
from django.template import Context, Template

MOMENT = datetime(2026, 11, 29, 7, 17, 5, tzinfo=UTC)
ROOT = Path(settings.BASE_DIR)


@pytest.mark.parametrize(
    ("template", "expected"),
    [
        ("{{ at|day }}", '<time datetime="2026-11-29">29 Nov 2026</time>'),
        ("{{ text|day }}", '<time datetime="2026-11-29">29 Nov 2026</time>'),
        ("{{ at|moment }}", '<time datetime="2026-11-29T07:17:05Z">29 Nov 2026, 07:17 UTC</time>'),
        ('{{ at|moment:"seconds" }}', '<time datetime="2026-11-29T07:17:05Z">29 Nov 2026, 07:17:05 UTC</time>'),
        ("{{ elsewhere|moment_text }}, {{ at|day_text }}", "29 Nov 2026, 07:17 UTC, 29 Nov 2026"),
    ],
)
def test_pages_have_one_format(template: str, expected: str) -> None:
    values = {"at": MOMENT, "text": "2026-11-29", "elsewhere": MOMENT.astimezone(timezone(timedelta(hours=9)))}
    assert Template("{% load runboard %}" + template).render(Context(values)) == expected


def test_lists_of_the_admin_have_the_same_format() -> None:
    assert display_for_value(MOMENT, "-") == "29 Nov 2026, 07:17 UTC"


def test_nothing_else_formats_dates_for_people() -> None:
    """Templates use `date` for attributes only, and programs name no month."""
    templates = [
        f"{path.relative_to(ROOT)}: {found}"
        for path in (ROOT / "templates").rglob("*.*")
        for found in re.findall(r"\|date:(?!'c'|'Y-m-d')[^ }]+", path.read_text(encoding="utf-8"))
    ]
    programs = [
        f"{path.relative_to(ROOT)}: {found}"
        for folder in ("leaderboard", "submissions")
        for path in (ROOT / folder).rglob("*.py")
        for found in re.findall(r"%-d|%B", path.read_text(encoding="utf-8"))
    ]
    assert templates + programs == []
