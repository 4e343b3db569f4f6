"""The submitter's way through a real browser, with and without JavaScript."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from django.conf import settings
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, expect

from leaderboard.models import Agreement, Dataset, User
from submissions.models import Notice, Worker
from tests.clicks import Clicks
from tests.factories import make_dataset
from tests.submissions.clients import Api
from tests.submissions.collections import QUERIES, make_collection, run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.browser, pytest.mark.django_db(transaction=True)]


def sign_in(context: BrowserContext, user: User, address: str) -> None:
    """Give the browser a session of this person."""
    client = Client()
    client.force_login(user)
    name = settings.SESSION_COOKIE_NAME
    context.add_cookies([{"name": name, "value": client.cookies[name].value, "url": address}])


def fill_form(page: Page, run: Path) -> None:
    """A new system and its run."""
    page.goto("/submit/?dataset=demo")
    page.get_by_label("Run files").set_input_files(run)
    page.get_by_label("System name").fill("From a browser")
    page.get_by_label("Architecture").select_option("dense")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A good run on disk."""
    path = tmp_path / "browser.txt"
    path.write_text(run_text())
    return path


def test_a_run_is_checked_submitted_and_followed_without_a_reload(
    demo: Dataset, alice: User, page: Page, live_server: Any, run: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    # Problems of a file are shown directly below it and receive the focus, even if the page has a notice above.
    Agreement.objects.create(dataset=make_dataset(slug="licensed"), text="For research alone.")
    broken = run.with_name("broken.txt")
    broken.write_text(run_text() + "a line\n")
    page.goto("/submit/?dataset=licensed")
    expect(page.get_by_role("link", name="read and accept its agreement")).to_be_visible()
    page.get_by_label("Run files").set_input_files(broken)
    heading = page.get_by_role("heading", name="Check results")
    expect(heading).to_be_focused()
    expect(heading).to_be_in_viewport()
    assert heading.evaluate("one => one.clientWidth") > 300
    submit = page.get_by_role("button", name="Submit", exact=True)
    expect(submit).to_be_disabled()
    page.get_by_label("System name").fill("Another name")
    expect(submit).to_be_disabled()
    fill_form(page, run)
    # A chosen file is checked immediately and stored, so it need not be chosen again.
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    expect(page.get_by_label("Dataset of browser.txt")).to_have_value("demo")
    expect(page.get_by_label("System name")).to_have_value("From a browser")
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))
    expect(page.get_by_text("No worker is online")).to_be_visible()
    page.evaluate("window.notReloaded = true")
    work()
    expect(page.get_by_role("row", name=re.compile(r"^RR@10 1\.000"))).to_be_visible()
    assert page.evaluate("window.notReloaded")
    assert page.locator("main [hx-get]").count() == 0


def test_a_choice_of_another_dataset_repeats_the_check(
    demo: Dataset, alice: User, page: Page, live_server: Any, run: Path, tmp_path: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    make_collection(tmp_path, "twin")
    unclear = run.with_name("unclear.txt")
    unclear.write_text(run_text() + "a line\n")
    page.goto("/submit/")
    page.get_by_label("Run files").set_input_files(unclear)
    panel = page.locator("#check-result")
    expect(panel.get_by_text("2 errors")).to_be_visible()
    page.get_by_label("Dataset of the files").focus()
    page.get_by_label("Dataset of the files").select_option("twin")
    expect(panel.get_by_text("for twin")).to_be_visible()
    expect(panel.get_by_text("1 error", exact=True)).to_be_visible()
    expect(page.get_by_label("Dataset of the files")).to_be_focused()
    page.get_by_label("Run files").set_input_files(run)
    page.get_by_label("Dataset of browser.txt").select_option("demo")
    expect(panel.get_by_text("for demo")).to_be_visible()


def test_pages_are_accessible_and_fit_a_phone(
    demo: Dataset, baseline: None, api: Api, page: Page, live_server: Any
) -> None:
    assert api.user is not None
    sign_in(page.context, api.user, live_server.url)
    done = api.submit(run_text(QUERIES[1:])).body["id"]
    work()
    waiting = api.submit(configuration="seed 2").body["id"]
    page.set_viewport_size({"width": 390, "height": 844})
    for path in (
        "/submit/?dataset=demo",
        "/submissions/",
        f"/submissions/{done}/",
        f"/submissions/{waiting}/",
        "/account/",
        "/systems/my-system/edit/",
    ):
        page.goto(path)
        violations = Axe().run(page).response["violations"]
        assert not violations, (path, [(each["id"], each["nodes"][0]["html"]) for each in violations])
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), path
        assert page.locator("table.scores").evaluate_all("all => all.every(one => one.clientWidth <= 358)"), path
    Notice.objects.create(person=api.user, kind="finished", subject="Scored", text="Scored.", key="a submission")
    page.reload()
    expect(page.locator(".account .count").first).to_have_text("1")
    for width in (320, 342, 370, 400):
        page.set_viewport_size({"width": width, "height": 844})
        assert page.locator(".site-head").evaluate("one => one.clientHeight") < 60, f"two rows at {width}"


def test_everything_works_without_javascript(
    demo: Dataset, alice: User, browser: Browser, live_server: Any, run: Path
) -> None:
    context = browser.new_context(base_url=live_server.url, java_script_enabled=False)
    sign_in(context, alice, live_server.url)
    page = context.new_page()
    fill_form(page, run)
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))
    assert page.locator("meta[http-equiv=refresh]").count() == 1
    work()
    page.reload()
    expect(page.get_by_role("row", name=re.compile(r"^RR@10 1\.000"))).to_be_visible()
    assert page.locator("meta[http-equiv=refresh]").count() == 0
    page.get_by_role("button", name="Make private").click()
    expect(page.get_by_text("private: only your team sees it")).to_be_visible()
    context.close()


def test_a_run_is_submitted_from_the_start_page_to_its_row_with_six_clicks(
    demo: Dataset, baseline: None, alice: User, page: Page, live_server: Any, run: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    page.goto("/")
    clicks = Clicks()
    clicks.on(page.get_by_role("banner").get_by_role("link", name="Submit"))
    clicks.choose_file(page.get_by_label("Run files"), run)
    clicks.on(page.get_by_label("System name"))
    page.keyboard.type("From the start page")
    # The name keeps the focus while the file is checked.
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    expect(page.get_by_label("System name")).to_be_focused()
    page.keyboard.press("Tab")
    page.keyboard.type("dense")
    expect(page.get_by_label("Architecture")).to_have_value("dense")
    clicks.on(page.get_by_role("button", name="Submit", exact=True))
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))
    work()
    expect(page.get_by_role("row", name=re.compile(r"^RR@10 1\.000"))).to_be_visible()
    clicks.on(page.get_by_role("main").get_by_role("link", name="Demo").first)
    expect(page.locator("#board-part tbody .name a").first).to_have_text("From the start page")
    assert clicks.count <= 6


def test_a_run_is_submitted_once_nothing_is_missing(
    demo: Dataset, alice: User, page: Page, live_server: Any, run: Path
) -> None:
    sign_in(page.context, alice, live_server.url)
    page.goto("/submit/")
    button, missing = page.get_by_role("button", name="Submit", exact=True), page.locator(".why-disabled.is-missing a")
    names = ["Choose a run file", "Enter a system name", "Choose an architecture"]
    fillings = [
        lambda: page.get_by_label("Run files").set_input_files(run),
        lambda: page.get_by_label("System name").fill("Mine"),
        lambda: page.get_by_label("Architecture").select_option("dense"),
    ]
    for number, fill in enumerate(fillings):
        expect(button).to_be_disabled()
        expect(missing.filter(visible=True)).to_have_text(names[number:])
        fill()
    expect(button).to_be_enabled()
    expect(missing.filter(visible=True)).to_have_count(0)


def test_an_existing_system_is_chosen_by_its_name(
    demo: Dataset, api: Api, page: Page, live_server: Any, run: Path
) -> None:
    assert api.user is not None
    api.submit(run_text(depth=9), configuration="shallow")
    sign_in(page.context, api.user, live_server.url)
    page.goto("/submit/")
    page.locator("details.more > summary").click()
    page.locator("[name=new-description]").fill("Another text.")
    page.get_by_label("System name").fill("My system")
    expect(page.get_by_text("This is one of your systems.")).to_be_visible()
    expect(page.get_by_label("Architecture")).to_have_value("dense")
    expect(page.locator(".why-disabled.is-missing a:visible")).to_have_text(["Choose a run file"])
    expect(page.locator("[name=new-description]")).to_be_hidden()
    page.get_by_label("Run files").set_input_files(run)
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    page.get_by_role("button", name="Submit", exact=True).click()
    page.wait_for_url(re.compile(r"/submissions/\w{12}/$"))


@pytest.mark.parametrize("with_script", [True, False])
def test_a_visitor_checks_a_file(
    demo: Dataset, browser: Browser, live_server: Any, run: Path, *, with_script: bool
) -> None:
    context = browser.new_context(
        base_url=live_server.url, java_script_enabled=with_script, viewport={"width": 390, "height": 844}
    )
    page = context.new_page()
    page.goto("/submit/")
    page.get_by_label("Run file").set_input_files(run)
    if not with_script:
        page.get_by_role("button", name="Check the file").click()
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    expect(page.get_by_role("complementary", name="Check").get_by_role("link", name="Demo")).to_be_visible()
    if with_script:
        assert not Axe().run(page).response["violations"]
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("link", name="Sign in to submit").click()
    page.wait_for_url(re.compile("/account/login/"))
    context.close()


@pytest.mark.parametrize("with_script", [True, False])
def test_the_file_of_a_visitor_is_kept_while_they_sign_in(
    demo: Dataset, alice: User, browser: Browser, live_server: Any, run: Path, *, with_script: bool
) -> None:
    context = browser.new_context(base_url=live_server.url, java_script_enabled=with_script)
    page = context.new_page()
    page.goto("/submit/?dataset=demo")
    expect(page.get_by_text("Your browser keeps the file")).to_be_visible(visible=with_script)
    expect(page.locator("form noscript p")).to_be_visible(visible=not with_script)
    page.get_by_label("Run file").set_input_files(run)
    page.get_by_role("link", name="Sign in to submit").click()
    page.wait_for_url(re.compile("/account/login/"))
    sign_in(context, alice, live_server.url)
    page.goto("/submit/?dataset=demo")
    stored = page.get_by_label("Dataset of browser.txt")
    if with_script:
        expect(page.get_by_text("Your browser kept browser.txt while you signed in.")).to_be_visible()
        expect(page.get_by_text("The run can be scored")).to_be_visible()
        expect(stored).to_have_value("demo")
        page.reload()
        expect(page.get_by_text("Your browser kept")).to_have_count(0)
    else:
        expect(stored).to_have_count(0)
    context.close()


def test_the_file_of_a_visitor_is_deleted_after_one_hour(
    demo: Dataset, alice: User, browser: Browser, live_server: Any, run: Path
) -> None:
    context = browser.new_context(base_url=live_server.url)
    page = context.new_page()
    page.goto("/submit/")
    page.get_by_label("Run file").set_input_files(run)
    page.get_by_role("link", name="Sign in to submit").click()
    page.wait_for_url(re.compile("/account/login/"))
    count_stored_files = """() => new Promise((resolve) => {
        indexedDB.open("runboard", 1).onsuccess = (event) => {
            const files = event.target.result.transaction("files").objectStore("files");
            files.count().onsuccess = (counted) => resolve(counted.target.result);
        };
    })"""
    assert page.evaluate(count_stored_files) == 1
    sign_in(context, alice, live_server.url)
    other = context.new_page()
    for hours, count in ((0, 1), (2, 0)):
        other.clock.set_fixed_time(datetime.now(UTC) + timedelta(hours=hours))
        other.goto("/submit/")
        other.wait_for_function(f"async () => await ({count_stored_files})() === {count}")
        expect(other.get_by_text("Your browser kept")).to_have_count(0)
    context.close()


@pytest.mark.parametrize("storage", ["indexedDB", "sessionStorage"])
def test_a_visitor_signs_in_if_the_browser_blocks_storage(
    demo: Dataset, browser: Browser, live_server: Any, run: Path, storage: str
) -> None:
    context = browser.new_context(base_url=live_server.url)
    context.add_init_script(
        f"Object.defineProperty(window, '{storage}', {{ get() {{ throw new DOMException('', 'SecurityError'); }} }})"
    )
    page = context.new_page()
    page.goto("/submit/")
    page.get_by_label("Run file").set_input_files(run)
    page.get_by_role("link", name="Sign in to submit").click()
    page.wait_for_url(re.compile("/account/login/"))
    context.close()


def test_boxes_are_in_line_with_their_labels_on_phones(page: Page, demo: Dataset, live_server: Any) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{live_server.url}/account/login/")
    box, label = page.locator("[type=checkbox]").bounding_box(), page.locator("label[for=id_remember]").bounding_box()
    assert box
    assert label
    assert abs(box["y"] + box["height"] / 2 - label["y"] - label["height"] / 2) < 2


@pytest.mark.usefixtures("demo")
def test_all_fields_of_the_form_are_visible_at_once(page: Page, alice: User, live_server: Any) -> None:
    now = Worker.objects.database_now()
    Worker.objects.create(name="w", queues=["score"], started_at=now, seen_at=now)  # Else the page has a notice.
    page.set_viewport_size({"width": 1440, "height": 900})
    sign_in(page.context, alice, live_server.url)
    page.goto("/submit/")
    submit = page.get_by_role("button", name="Submit", exact=True)
    details = page.get_by_text("More details")
    for element in (details, submit):
        expect(element).to_be_in_viewport(ratio=1)
    assert details.evaluate(
        """details => {
          const box = details.getBoundingClientRect();
          return details.contains(document.elementFromPoint(box.x + 30, box.y + box.height / 2));
        }"""
    ), "nothing covers it"


@pytest.mark.usefixtures("demo")
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_disabled_button_has_the_contrast_of_text(page: Page, alice: User, live_server: Any, scheme: Any) -> None:
    page.emulate_media(color_scheme=scheme)
    sign_in(page.context, alice, live_server.url)
    page.goto("/submit/")
    button = page.get_by_role("button", name="Submit", exact=True)
    expect(button).to_be_disabled()
    expect(button).to_have_css("opacity", "1")
    expect(button).to_have_css("color", page.locator(".lead").evaluate("text => getComputedStyle(text).color"))


def test_the_tabs_of_the_account_are_on_one_line_on_phones(page: Page, alice: User, live_server: Any) -> None:
    sign_in(page.context, alice, live_server.url)
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto("/account/")
    tops = page.locator(".tabs a").evaluate_all("links => links.map((link) => link.getBoundingClientRect().top)")
    assert len(tops) > 4
    assert len(set(tops)) == 1
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.locator(".tabs a").last.focus()
    expect(page.locator(".tabs a").last).to_be_in_viewport()


def test_on_phones_the_check_is_below_the_file_and_submissions_have_the_same_cells(
    page: Page, demo: Dataset, baseline: None, api: Api, live_server: Any, run: Path
) -> None:
    def top(selector: str) -> float:
        box = page.locator(selector).first.bounding_box()
        assert box
        return box["y"]

    api.submit(run_text(depth=9), system="First")
    api.submit(run_text(depth=8), system="Second")
    work()
    page.set_viewport_size({"width": 390, "height": 844})
    sign_in(page.context, api.user, live_server.url)
    page.goto("/submit/")
    expect(page.get_by_text("Drop run files here")).to_be_hidden()
    expect(page.get_by_text("Choose run files")).to_be_visible()
    assert top(".drop") < top("[name=new-name]") < top(".check-panel") < top(".more") < top(".submit-bar")
    page.get_by_label("Run files").set_input_files(run)
    expect(page.get_by_text("The run can be scored")).to_be_visible()
    assert top(".drop") < top(".check-panel") < top("[name=new-name]") < top(".submit-bar")
    page.goto("/submissions/")
    for name in ("score", "difference", "rank"):
        cells = page.locator(f".result-line > .{name}[data-label]").all()
        lefts = [box["x"] for box in (cell.bounding_box() for cell in cells) if box]
        assert len(lefts) == 2
        assert len(set(lefts)) == 1
