"""The pages of curation in a real browser: under the site's CSP, on a phone and a wide screen, in both schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from playwright.sync_api import Page, expect

from leaderboard.core.audit import acting
from leaderboard.core.permissions import make_curator
from leaderboard.models import AuditRecord, Dataset
from leaderboard.results.publishing.visibility import quarantine
from tests.factories import make_user
from tests.leaderboard.entries import make_source, make_system, score, scored_dataset

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

#: Set to a folder to keep pictures of every page.
PICTURES = settings.BASE_DIR / "var" / "curation-pictures"


@pytest.fixture
def curation(page: Page, live_server: Any) -> dict[str, str]:
    """A curator signed in at the browser, and the pages to look at, by name."""
    carol = make_user("Carol")
    make_curator(carol, read_qrels=True)
    dataset = scored_dataset(slug="nuts", name="Nuts and bolts")
    system = make_system("Tawny owl")
    entry = score(dataset, system, ndcg=0.75)
    score(dataset, "Barn owl", ndcg=0.5)
    source = make_source("paper")
    with acting(carol, "trained on the test queries"):
        quarantine(entry, "trained on the test queries")
        source.title = "On nests"
        source.save()
    client = Client()
    client.force_login(carol)
    session = client.cookies[settings.SESSION_COOKIE_NAME]
    page.context.add_cookies([{"name": session.key, "value": session.value, "url": live_server.url}])
    admin = "/admin/leaderboard"
    return {
        "index": "/admin/",
        "datasets": f"{admin}/dataset/",
        "dataset": f"{admin}/dataset/{dataset.pk}/change/",
        "measures": f"{admin}/dataset/{dataset.pk}/measures/",
        "table": f"{admin}/system/table/",
        "entries": f"{admin}/entry/",
        "merge": f"{admin}/system/{system.pk}/merge/",
        "history": f"{admin}/source/{source.pk}/history/",
        "delete": f"{admin}/source/{source.pk}/delete/",
        "audit": f"{admin}/auditrecord/",
        "record": f"{admin}/auditrecord/{AuditRecord.objects.filter(action='quarantined')[0].pk}/change/",
        "choice of a system": f"{admin}/system/?_popup=1",
        "board": "/datasets/nuts/",
    }


@pytest.mark.parametrize(("width", "scheme"), [pytest.param(1440, "light", marks=pytest.mark.long), (390, "dark")])
def test_pages_of_curation_are_readable_by_everyone(
    page: Page, curation: dict[str, str], width: int, scheme: Any
) -> None:
    # axe sets styles inline itself: it looks at a page of its own, whose console nobody reads.
    looked_at = page.context.new_page()
    for each in (page, looked_at):
        each.set_viewport_size({"width": width, "height": 900 if width > 400 else 844})
        each.emulate_media(color_scheme=scheme)
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(f"{page.url}: {error}"))
    for number, (name, address) in enumerate(curation.items()):
        page.goto(address)
        if PICTURES.exists():
            page.screenshot(path=Path(PICTURES) / f"{name}-{width}-{scheme}.png", full_page=True)
        wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        if wider > 0:
            faults.append(f"{name} is {wider} px wider than the screen")
        if (number % 3 == 1) != (width < 400):  # the rules take seconds: a third on a phone, the others wide
            continue
        looked_at.goto(address)
        for one in Axe().run(looked_at).response["violations"]:
            if one["impact"] in ("serious", "critical"):
                faults += [f"{name}: {one['id']}: {node['html'][:160]}" for node in one["nodes"][:3]]
    assert not faults, "\n".join(faults)


def test_a_curator_quarantines_and_edits_by_hand(page: Page, curation: dict[str, str]) -> None:
    page.goto(curation["entries"])
    page.get_by_role("row", name="Barn owl").get_by_role("checkbox").check()
    page.locator("select[name=action]").select_option(label="Quarantine: remove from the ranking with a public reason")
    page.get_by_role("button", name="Continue").click()
    page.get_by_label("Reason").fill("the same run under another name")
    page.get_by_role("button", name="Quarantine").click()
    expect(page.get_by_text("is quarantined")).to_be_visible()
    page.goto(curation["dataset"])
    page.get_by_label("License").fill("CC BY 4.0")
    page.get_by_label("Reason").fill("its authors told us")
    page.get_by_role("button", name="Save", exact=True).click()
    expect(page.get_by_text("was changed successfully")).to_be_visible()
    assert Dataset.objects.get(slug="nuts").licence == "CC BY 4.0"


def test_lists_on_phones_show_what_sorts_and_the_actions_of_chosen_rows(page: Page, curation: dict[str, str]) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(curation["entries"])
    expect(page.locator("#result_list thead").get_by_role("link", name="Dataset")).to_be_visible()
    expect(page.locator("#result_list thead").get_by_text("Primary measure")).to_be_hidden()
    button = page.get_by_role("button", name="Continue")
    expect(button).to_be_hidden()
    page.get_by_role("row", name="Barn owl").get_by_role("checkbox").check()
    expect(button).to_be_in_viewport()
