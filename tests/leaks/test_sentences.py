"""Every sentence about a result says the same of two sites that differ in one hidden judgement below rounding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from django.core import mail

from leaderboard.boards.pages import dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.boards.system.standing import standings
from leaderboard.models import Entry
from leaderboard.views.share_image import draw_board
from submissions.models import Notice
from submissions.notifications.sending import send_notifications
from tests.leaks.sites import Site, make_two_sites, unrounded
from tests.leaks.test_sites import differences
from tests.submissions.clients import Api

pytestmark = pytest.mark.django_db


def sentences(site: Site) -> Sequence[str]:
    """The card, the list, notices, mails, the API's answer, badges, feeds, the lists of all boards and the picture."""
    entries = Entry.objects.filter(dataset=site.dataset).select_related("dataset").order_by("pk")
    told = [found.sentence for found in standings(entries).values()]
    assert any(" over BM25 (significant)" in each for each in told), told
    assert any("separable from" in each for each in told), told
    mail.outbox.clear()
    send_notifications()
    notices = [notice.text for notice in Notice.objects.filter(person=site.owner).order_by("pk")]
    mails = [f"{each.subject}\n{each.body}" for each in mail.outbox]
    api = Api(site.owner)
    answers = [api.get(f"submissions/{reference}/").body["results"] for reference in site.submissions]
    cards = [site.get(f"/submissions/{reference}/", owner=True) for reference in site.submissions]
    for card, answer, notice, message in zip(cards, answers, notices, mails, strict=True):
        (result,) = answer
        said = result["sentence"]
        assert said in told
        for where in (re.sub("</?span[^>]*>", "", card), notice, message):
            assert said[1:] in where, (said, where)
    slugs = entries.values_list("system__slug", flat=True)
    badges = [site.get(f"/systems/{slug}/badge.svg?dataset={site.dataset.slug}") for slug in slugs]
    slug = site.dataset.slug
    lists = ("/", "/benchmarks/", "/news/", "/news/atom.xml", f"/datasets/{slug}/atom.xml")
    # Names of news are made of the moment of a change.
    pages = [re.sub(r"urn:uuid:[0-9a-f-]+", "…", site.get(each)) for each in lists]
    pages.append(site.get("/submissions/", owner=True))
    page = dataset_page(slug, BoardState())
    assert page is not None
    picture = draw_board(page.board).tobytes().hex()
    return [*told, *notices, *mails, *map(repr, answers), *cards, *badges, *pages, picture]


def test_no_sentence_depends_on_a_judgement_below_rounding(tmp_path: Path) -> None:
    means: list[list[str]] = []

    def asked(site: Site) -> Sequence[str]:
        means.append(unrounded(site))
        return sentences(site)

    first, second = make_two_sites(tmp_path).ask(asked)
    assert means[0] != means[1], "the judgement changes nothing: the test proves nothing"
    found = differences(first, second)
    assert not found, "\n".join(found)
