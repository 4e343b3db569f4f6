"""The card of a result on its submission's page."""

from __future__ import annotations

import pytest
from django.template.loader import render_to_string

from leaderboard.boards.system.standing import Standing
from leaderboard.results.significance.statements import Statement


@pytest.mark.parametrize(("better", "green"), [(True, True), (False, False), (None, False)])
def test_only_what_is_shown_to_be_better_than_the_baseline_is_green(better: bool | None, green: bool) -> None:
    said = Statement(better=better)
    standing = Standing("Demo", "demo", "nDCG@10", 0.3, 0.1, "BM25", is_baseline=False, said=said)
    assert ("is-good" in render_to_string("submissions/_result.html", {"standing": standing})) is green
