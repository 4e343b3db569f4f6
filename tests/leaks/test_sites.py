"""Two sites that differ in one hidden judgement below rounding say the same of certainty, to the byte."""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.utils import timezone

from leaderboard.models import Entry
from leaderboard.results import values
from leaderboard.results.significance.statements import statements
from tests.leaks.routes import addresses, routes
from tests.leaks.sites import Site, TwoSites, make_two_answer_sites, make_two_sites, unrounded

pytestmark = pytest.mark.django_db


@pytest.fixture
def sites(tmp_path: Path) -> TwoSites:
    return make_two_sites(tmp_path)


def said(site: Site) -> Sequence[str]:
    """Every statement of every entry, and the answers that carry them."""
    board = statements([site.dataset.pk])[site.dataset.pk]
    entries = Entry.objects.filter(dataset=site.dataset).order_by("pk")
    told = [repr(board.for_entry(entry.pk, "nDCG@10")) for entry in entries]
    slug = site.dataset.slug
    answers = [
        site.get(f"/api/v1/datasets/{slug}/board/"),
        site.get(f"/datasets/{slug}/"),
        *(site.get(f"/api/v1/systems/{slug}/") for slug in entries.values_list("system__slug", flat=True)),
        *(site.get(f"/submissions/{reference}/", owner=True) for reference in site.submissions),
    ]
    assert all(answer.startswith("200 ") for answer in answers), [answer[:200] for answer in answers]
    assert '"better_than_baseline":true' in answers[0].replace(" ", "")
    assert '"better_than_baseline":false' in answers[0].replace(" ", "")
    assert '"contamination_gap":{' in answers[0].replace(" ", "")
    return [*told, repr(board), *answers]


def differences(first: Sequence[str], second: Sequence[str]) -> list[str]:
    """The lines in which what both sites say differs."""
    found = []
    for one, other in zip(first, second, strict=True):
        lines = difflib.unified_diff(re.split(r"[\n,>]", one), re.split(r"[\n,>]", other), lineterm="", n=0)
        found += [line[:300] for line in lines]
    return found


def test_what_is_said_does_not_depend_on_a_judgement_below_rounding(sites: TwoSites) -> None:
    means: list[list[str]] = []

    def asked(site: Site) -> Sequence[str]:
        means.append(unrounded(site))
        return said(site)

    first, second = sites.ask(asked)
    assert means[0] != means[1], "the judgement changes nothing: the test proves nothing"
    found = differences(first, second)
    assert not found, "\n".join(found)


def test_no_address_tells_which_query_was_answered_correctly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values, now = list[list[str]](), datetime(2026, 3, 1, 9, tzinfo=UTC)
    monkeypatch.setattr(timezone, "now", lambda: now)  # Files of both sites have the same dates.

    def every_address(site: Site) -> Sequence[str]:
        values.append(unrounded(site))
        board = statements([site.dataset.pk])[site.dataset.pk]
        names = [address for route in routes() for address in addresses(route) if not route.text.startswith("admin/")]
        return [repr(board), *(f"{name}\n{site.get(name, owner=True)}" for name in names)]

    first, second = make_two_answer_sites(tmp_path).ask(every_address)
    assert values[0] != values[1], "the answers change nothing: the test proves nothing"
    assert sum('"EM":' in answer for answer in first) > 3
    found = differences(first, second)
    assert not found, "\n".join(found)


@pytest.mark.long
def test_values_in_full_would_be_found(sites: TwoSites, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "HIDDEN_DECIMALS", 15)
    first, second = sites.ask(said)
    assert differences(first, second)
