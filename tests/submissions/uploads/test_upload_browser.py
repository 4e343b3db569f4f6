"""Files on their way in a real browser: progress, pieces that go on after a break or a reload, pause and cancel."""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Locator, Page, Request, Route, expect

from leaderboard.models import Dataset, User
from submissions.models import Upload
from submissions.uploads import storage
from tests.submissions.collections import run_text
from tests.submissions.models import with_corpus
from tests.submissions.views.test_browser import fill_form, sign_in

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]

PIECE = 8 * 1024 * 1024


@pytest.fixture
def demo(demo: Dataset, tmp_path: Path) -> Dataset:
    """The open dataset with its documents: only then has the form fields that are called `dataset`."""
    return with_corpus(demo, tmp_path)


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A file of two pieces that is no checkpoint."""
    path = tmp_path / "model.zip"
    path.write_bytes(random.Random(1).randbytes(PIECE + 1_000_000))
    return path


def breaking(times: int) -> Callable[[Route], None]:
    """A network that breaks at pieces after the first one, so many times."""
    broken = 0

    def handle(route: Route) -> None:
        nonlocal broken
        later = route.request.method == "PATCH" and route.request.headers["upload-offset"] != "0"
        if later and broken < times:
            broken += 1
            route.abort("connectionreset")
        else:
            route.continue_()

    return handle


def choose(page: Page, archive: Path) -> Locator:
    """The row of the archive, which is sent as soon as it is chosen."""
    page.goto("/submit/model/?engine=dense")
    assert page.locator("form[data-uploads] input[name=dataset]").count()
    page.get_by_label("Upload an archive").set_input_files(archive)
    return page.locator(".upload", has_text="model.zip")


def test_a_large_archive_goes_on_after_the_connection_broke(
    demo: Dataset, alice: User, page: Page, live_server: Any, archive: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    page.route("**/api/v1/uploads/**", breaking(1))
    row = choose(page, archive)
    expect(row).to_contain_text("The connection was lost at 89%. Trying again in 1 s.")
    expect(row.get_by_role("button", name="Resume")).to_be_visible()
    expect(row).to_contain_text("Uploaded 9.4 MB")
    assert row.get_by_role("progressbar").evaluate("meter => meter.value") == 100
    expect(row.get_by_role("status")).to_contain_text("model.zip: Uploaded 9.4 MB")
    bodies: list[int] = []
    page.on("request", lambda request: _note(bodies, request))
    page.get_by_role("button", name="Check the archive only").first.click()
    expect(page.get_by_text("The model cannot be run here.")).to_be_visible()
    assert len(bodies) == 1
    assert bodies[0] < 100_000
    expect(page.locator(".upload")).to_have_count(1)  # it is here still, and not offered twice
    expect(page.locator(".kept-upload")).to_have_count(0)
    assert page.get_by_label("Upload an archive").evaluate("input => input.files.length") == 1
    assert Axe().run(page).response["violations"] == []


@pytest.mark.usefixtures("models_run_here")
def test_a_model_is_submitted_once_nothing_is_missing(
    demo: Dataset, alice: User, page: Page, live_server: Any, tmp_path: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    page.goto("/submit/model/?engine=dense")
    button, missing = page.get_by_role("button", name="Submit", exact=True), page.locator(".why-disabled.is-missing a")
    small = tmp_path / "model.zip"
    small.write_bytes(b"PK")
    names = ["Choose an archive", "Choose at least one dataset", "Enter a system name"]
    fillings = [
        lambda: page.get_by_label("Upload an archive").set_input_files(small),
        lambda: page.locator("form[data-uploads] input[name=dataset]").first.check(),
        lambda: page.get_by_label("System name").fill("Mine"),
    ]
    for number, fill in enumerate(fillings):
        expect(button).to_be_disabled()
        expect(missing.filter(visible=True)).to_have_text(names[number:])
        fill()
    expect(button).to_be_enabled()
    expect(missing.filter(visible=True)).to_have_count(0)


def hold_no_longer(page: Page, held: list[Route]) -> None:
    """Let requests through from now on. Those that are held would go on, though the page gave them up."""
    for route in held:
        route.abort()
    page.unroute_all()


def _note(bodies: list[int], request: Request) -> None:
    if request.method == "POST":
        bodies.append(len(request.post_data_buffer or b""))


def test_an_upload_goes_on_after_the_page_was_loaded_anew(
    demo: Dataset, alice: User, page: Page, live_server: Any, archive: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    page.route("**/api/v1/uploads/**", breaking(1000))
    expect(choose(page, archive)).to_contain_text("The connection was lost at 89%")
    begun = Upload.objects.get()
    assert begun.offset == PIECE
    page.unroute_all()
    expect(choose(page, archive)).to_contain_text("Uploaded")
    assert Upload.objects.get().pk == begun.pk
    assert storage.path_of(begun.pk).read_bytes() == archive.read_bytes()


@pytest.mark.long
def test_an_upload_is_paused_resumed_and_cancelled(
    demo: Dataset, alice: User, page: Page, live_server: Any, archive: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    held: list[Route] = []
    page.route("**/api/v1/uploads/*/", lambda route: held.append(route))
    row = choose(page, archive)
    expect(row).to_contain_text(re.compile(r"^model.zip.*0%"))
    row.get_by_role("button", name="Pause").click()
    expect(row).to_contain_text("Paused at 0%.")
    hold_no_longer(page, held)
    row.get_by_role("button", name="Resume").click()
    expect(row).to_contain_text("Uploaded")
    row.get_by_role("button", name="Cancel").click()
    expect(page.locator(".upload")).to_have_count(0)
    expect(page.get_by_label("Upload an archive")).to_be_focused()
    deadline = time.monotonic() + 60
    while Upload.objects.exists():  # the row on the page goes first
        assert time.monotonic() < deadline
        page.wait_for_timeout(50)


def test_a_form_with_small_files_shows_its_way_and_can_be_stopped(
    demo: Dataset, alice: User, page: Page, live_server: Any, tmp_path: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    run = tmp_path / "run.txt"
    run.write_text(run_text())
    fill_form(page, run)
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    held: list[Route] = []
    page.route("**/submit/**", lambda route: held.append(route))
    page.get_by_role("button", name="Submit", exact=True).first.click()
    row = page.locator(".upload", has_text="This submission")
    expect(row.get_by_role("progressbar")).to_be_visible()
    row.get_by_role("button", name="Cancel").click()
    expect(row).to_have_count(0)
    hold_no_longer(page, held)
    page.get_by_role("button", name="Submit", exact=True).first.click()
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))
