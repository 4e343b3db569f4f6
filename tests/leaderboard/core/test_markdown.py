"""Descriptions written in Markdown: which links are kept."""

from __future__ import annotations

import pytest

from leaderboard.core.text.markdown import to_html


@pytest.mark.parametrize(
    "target", ["https://example.org/a?b=c", "HTTP://example.org", "mailto:a@example.org", "#results"]
)
def test_absolute_links_and_anchors_are_kept(target: str) -> None:
    assert f'<a href="{target}"' in to_html(f"[d]({target})")


@pytest.mark.parametrize(
    "target",
    ["//evil.example", "/accounts/logout/", "page", "https:evil", "https:///evil.example", "\\\\\\\\evil.example",
     "/\\\\evil.example", "<https:\\\\\\\\evil.example>", "javascript:alert(1)", "data:text/html,x", "?q=1", ""],
)  # fmt: skip
def test_other_links_are_text(target: str) -> None:
    html = to_html(f"[d]({target})")
    assert "href" not in html
    assert "d" in html
