"""Every page of the site, on a phone and on a wide screen, in both schemes: what anybody can read and reach."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.utils import timezone
from playwright.sync_api import Browser, Page

from leaderboard.models import Dataset, System
from submissions.queue.queue import create_requested_jobs
from tests.reported_boards import load_reported
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PAGES = (
    "/",
    "/benchmarks/",
    "/benchmarks/beir/",
    "/benchmarks/beir/?view=relative&pin=bm25-ce-beir&zero-shot=1",
    "/datasets/",
    "/datasets/demo/",
    "/datasets/demo/queries/",
    "/datasets/demo/queries/q1/",
    "/datasets/trec-covid/",
    "/systems/{mine}/",
    "/compare/",
    "/compare/?system=bm25&system={mine}&dataset=demo",
    "/figures/",
    "/figures/wins/?benchmark=beir",
    "/news/",
    "/search/?q=system",
    "/docs/engines/",
    "/privacy/",
    "/authors/nandan-thakur/",
    "/teams/{team}/",
    "/datasets/demo/at/{at}/",
    "/measures/",
    "/efficiency/",
    "/formats/",
    "/api/v1/docs/",
    "/api/v1/docs/submissions/",
    "/account/login/",
    "/account/signup/",
)

#: Scheme, width and height of a desk's screen and of a phone's.
SCREENS: tuple[tuple[Literal["light", "dark"], int, int], ...] = (("light", 1440, 900), ("dark", 390, 844))


@pytest.fixture
def content(demo: Dataset, baseline: None, api: Api) -> dict[str, str]:
    """A dataset with two results and what was found of them, and the reported boards."""
    load_reported()
    for name, skip in (("My system", 0), ("Another one", 2)):
        assert api.submit(run_text(skip=skip), system=name).status == 201
    work()
    for _ in range(2):
        create_requested_jobs()
        work()
    team = System.objects.get(slug="my-system").team
    assert team is not None
    return {"mine": "my-system", "team": team.slug, "at": f"{timezone.now():%Y-%m-%dT%H:%M:%SZ}"}


@pytest.fixture
def screen(browser: Browser, live_server: Any) -> Iterator[Page]:
    """A window."""
    context = browser.new_context(base_url=live_server.url)
    yield context.new_page()
    context.close()


def _fits(screen: Page) -> bool:
    """Whether nothing sticks out at the side; figures take a moment to be drawn anew for another width."""
    deadline = time.monotonic() + 60
    while not (fits := screen.evaluate("document.documentElement.scrollWidth <= innerWidth")):
        if time.monotonic() > deadline:
            break
        time.sleep(0.05)
    return bool(fits)


def _serious(screen: Page, path: str) -> list[str]:
    found = Axe().run(screen).response["violations"]
    return [
        f"{path}: {one['id']}: {one['nodes'][0]['html'][:200]}"
        for one in found
        if one["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.long)], ids=["a third", "all"])
def test_every_page_is_accessible_and_fits_the_screen(content: dict[str, str], screen: Page, every: int) -> None:
    faults: list[str] = []
    screen.on("pageerror", lambda error: faults.append(f"{screen.url}: {error}"))
    screen.on(
        "console",
        lambda line: faults.append(f"{screen.url}: {line.text}") if "Content Security" in line.text else None,
    )
    for number, pattern in enumerate(PAGES[2::every] if every > 1 else PAGES):
        path = pattern.format(**content)
        scheme, width, height = SCREENS[number % 2]
        screen.set_viewport_size({"width": width, "height": height})
        screen.emulate_media(color_scheme=scheme)
        answer = screen.goto(path)
        assert answer is not None
        if answer.status != 200:
            faults.append(f"{path} answered {answer.status}")
            continue
        if every == 1 or number % 2:  # the rules take a second
            faults += _serious(screen, path)
        for _, width, height in SCREENS:
            screen.set_viewport_size({"width": width, "height": height})
            if not _fits(screen):
                faults.append(f"{path} is wider than a screen of {width}")
    assert not faults, "\n".join(faults)
