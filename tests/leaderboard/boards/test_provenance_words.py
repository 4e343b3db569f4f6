"""The three provenances have the same names on boards, in filters, in the admin, and on other pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.template import Context, Template

from leaderboard.boards.facets import facet_label
from leaderboard.models import Entry

NAMES = {"reported": "reported", "scored": "uploaded", "measured": "run by Runboard"}
ROOT = Path(settings.BASE_DIR)


@pytest.mark.parametrize(("value", "name"), NAMES.items())
def test_a_provenance_has_one_name(value: str, name: str) -> None:
    badge = Template("{% load runboard %}{{ value|provenance_badge }}").render(Context({"value": value}))
    assert badge == f'<span class="badge is-{value}">{name}</span>'
    assert Entry(provenance=value).get_provenance_display() == name
    assert facet_label("provenance", value) == name


def test_no_page_has_another_name() -> None:
    other = re.compile(
        r"(scored|made|computed|measured|run) here\b|scored on this site|is-\{\{ \S*provenance", re.IGNORECASE
    )
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in (*(ROOT / "templates" / "leaderboard").rglob("*.html"), *(ROOT / "leaderboard").rglob("*.py"))
        if "migrations" not in path.parts
        for match in other.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []
