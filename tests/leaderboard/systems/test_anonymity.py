"""Anonymous systems: nothing that anybody else can read says whose they are, until it is lifted."""

from __future__ import annotations

import gzip
import html
import io
import re
import zipfile
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from urllib.parse import urljoin, urlsplit

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.core import anonymity as shown_names
from leaderboard.models import AuditRecord, BoardChange, Dataset, System, Team, User
from leaderboard.systems import anonymity
from leaderboard.systems.anonymity import EmbargoRefused, end_due_anonymity, latest_end, make_anonymous
from leaderboard.systems.records import merge_conflicts
from submissions.accounts.teams import rename_team
from tests.factories import team_of
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.submissions.clients import Api, upload
from tests.submissions.collections import baseline as baseline
from tests.submissions.collections import demo as demo
from tests.submissions.collections import run_text
from tests.submissions.people import alice as alice
from tests.submissions.people import api as api
from tests.submissions.people import nobody as nobody
from tests.submissions.people import signed_in as signed_in
from tests.submissions.people import stranger as stranger
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

#: Words that only the planted system's people have in them.
MARKERS = (
    "zyxteam",
    "zyxauthor",
    "zyxpaper",
    "zyxcode",
    "zyxmodel",
    "zyxbibtex",
    "zyxfile",
    "zyxtag",
    "zyxperson",
)
#: What no page links to.
UNLINKED = (
    "/api/v1/systems/planted/",
    "/api/v1/datasets/demo/",
    "/api/v1/datasets/demo/board/",
    "/api/v1/datasets/demo/board/?q=zyx",
    "/api/v1/datasets/",
    "/datasets/demo/?team=anonymous",
    "/compare/?system=bm25&system=planted&dataset=demo",
    "/authors/zyxauthor-one/",
    "/news/atom.xml",
    "/search/?q=zyx",
    "/api/v1/search/?q=zyx",
    "/figures/",
    "/systems/planted/badge.svg?dataset=demo",
    "/systems/planted/badge.json?dataset=demo",
    *(f"/datasets/demo/board.{ending}" for ending in ("csv", "json", "md", "tex", "bib")),
)


def in_days(days: int) -> datetime:
    """A day from now."""
    return timezone.now() + timedelta(days=days)


@pytest.fixture
def planted(demo: Dataset, baseline: None, api: Api, alice: User) -> System:
    """A public anonymous system whose team, authors, links, file and run tag have markers in them."""
    Dataset.objects.filter(pk=demo.pk).update(runs_visibility="public")
    alice.name = "Zyxperson"
    alice.save()
    rename_team(team_of(alice), "Zyxteam Laboratory")
    Team.objects.filter(pk=team_of(alice).pk).update(slug="zyxteam-laboratory")
    answer = api.submit(
        system="Planted",
        file=[upload(run_text(skip=skip, tag="zyxtag"), f"zyxfile-{skip}.txt") for skip in (0, 1)],
        dataset=["demo", "demo"],
        authors="Zyxauthor One",
        paper="https://example.org/zyxpaper",
        code="https://example.org/zyxcode",
        model="https://example.org/zyxmodel",
        bibtex="@misc{zyxbibtex, title={Zyxbibtex}, author={Zyxauthor One}}",
        anonymous_until=in_days(60).date().isoformat(),
    )
    assert answer.status == 201, answer.body
    work()
    return System.objects.get(slug="planted")


@pytest.fixture
def known(planted: System, api: Api) -> System:
    """Another system of the team, which says that it is a variant of the anonymous one."""
    answer = api.submit(run_text(skip=2), system="Known", variant_of="planted")
    assert answer.status == 201, answer.body
    work()
    return System.objects.get(slug="known")


def texts(content: bytes) -> Iterable[str]:
    """What can be read in an answer: what is compressed is expanded, with the names of an archive's files."""
    if content[:2] == b"PK":
        with zipfile.ZipFile(io.BytesIO(content)) as packed:
            for name in packed.namelist():
                yield name
                yield packed.read(name).decode()
    elif content[:2] == b"\x1f\x8b":
        yield gzip.decompress(content).decode()
    else:
        yield content.decode(errors="replace")


def crawl(client: Client, starts: Iterable[str], most: int = 200) -> dict[str, str]:
    """Everything that can be reached by links, by path; of views of boards that differ by their query only a few."""
    found: dict[str, str] = {}
    waiting, seen_paths = list(starts), dict[str, int]()
    while waiting and len(found) < most:
        path = waiting.pop(0)
        plain = urlsplit(path).path
        if path in found or seen_paths.get(plain, 0) >= 2 or plain.startswith(("/static/", "/account/", "/admin/")):
            continue
        seen_paths[plain] = seen_paths.get(plain, 0) + 1
        answer = client.get(path)
        content = b"".join(answer.streaming_content) if answer.streaming else answer.content  # type: ignore[attr-defined]
        found[path] = "\n".join([str(answer.headers), *texts(content)])
        if "text/html" in answer.headers.get("Content-Type", ""):
            links = re.findall(r'(?:href|src)="([^"#]+)', found[path])
            addresses = (urlsplit(urljoin(f"http://testserver{path}", html.unescape(link))) for link in links)
            waiting += [
                each.path + (f"?{each.query}" if each.query else "")
                for each in addresses
                if each.netloc == "testserver"
            ]
    return found


def leaks(found: dict[str, str], own: Iterable[str] = ()) -> list[tuple[str, str]]:
    """Where a marker can be read; pages of the team's known system and its own empty page are `own`."""
    return [
        (path, marker)
        for path, text in found.items()
        for marker in MARKERS
        if marker in text.casefold() and marker not in path and not path.startswith(tuple(own))
    ]


def pages(client: Client, planted: System, at: datetime) -> dict[str, str]:
    """All that this visitor can reach."""
    reference = planted.entries.get().submission_reference
    return crawl(
        client,
        [
            "/",
            "/systems/planted/",
            "/datasets/demo/",
            f"/datasets/demo/at/{at:%Y-%m-%dT%H:%M:%SZ}/",
            f"/submissions/{reference}/",
            f"/submissions/{reference}/progress/",
            f"/submissions/{reference}/runs/demo/?seed=0",
            f"/api/v1/submissions/{reference}/",
            *UNLINKED,
        ],
    )


@pytest.mark.parametrize("who", ["stranger", pytest.param("nobody", marks=pytest.mark.long)])
def test_nobody_else_can_read_whose_it_is(who: str, planted: System, request: pytest.FixtureRequest) -> None:
    person: Api = request.getfixturevalue(who)
    if person.user:
        person.client.force_login(person.user)
    found = pages(person.client, planted, timezone.now())
    assert len(found) > 60, sorted(found)
    assert "Planted" in found["/datasets/demo/"]
    assert "anonymous" in found["/datasets/demo/"]
    assert not leaks(found), leaks(found)


def test_one_system_that_cannot_be_lifted_keeps_no_other_waiting(
    planted: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    other = System.objects.create(slug="other", name="Other", architecture="dense", team=planted.team)
    System.objects.exclude(team=None).update(anonymous_until=in_days(-1))
    real = anonymity.system_changed

    def fails_for_the_first(system: System) -> None:
        if system.pk == planted.pk:
            raise RuntimeError("its board")
        real(system)

    monkeypatch.setattr(anonymity, "system_changed", fails_for_the_first)
    assert end_due_anonymity(timezone.now()) == 1
    planted.refresh_from_db()
    other.refresh_from_db()
    assert planted.anonymous_until is not None
    assert other.anonymous_until is None
    assert re.search(rf"fault [0-9a-f]{{8}}: system {planted.pk} is still anonymous", caplog.text)
    monkeypatch.undo()
    assert end_due_anonymity(timezone.now()) == 1


def test_after_it_is_lifted_everyone_reads_it_but_not_in_permalinks_of_that_time(planted: System, nobody: Api) -> None:
    at = timezone.now()
    System.objects.filter(pk=planted.pk).update(anonymous_until=in_days(-1))
    # A board has one revision a second for permalinks.
    BoardChange.objects.update(at=at - timedelta(seconds=5))
    assert end_due_anonymity(timezone.now()) == 1
    assert end_due_anonymity(timezone.now()) == 0
    planted.refresh_from_db()
    assert planted.anonymous_until is None
    assert AuditRecord.objects.filter(action="anonymity lifted").exists()
    found = pages(nobody.client, planted, at - timedelta(seconds=2))
    readable = {marker for _, marker in leaks(found)}
    assert readable == set(MARKERS) - {"zyxperson", "zyxfile"}
    past = next(path for path in found if "/at/" in path)
    assert "Planted" in found[past]
    assert "zyxteam" not in found[past].casefold()


def test_a_known_variant_does_not_give_it_away(planted: System, known: System, nobody: Api) -> None:
    page = nobody.client.get("/systems/known/").content.decode()
    assert "Zyxteam" in page
    assert "/systems/planted/" not in page
    assert nobody.get("systems/known/").body["variant_of_slug"] is None
    hidden = nobody.client.get("/systems/planted/").content.decode()
    assert "/systems/known/" not in hidden.split("Results")[0]
    assert "Variant" not in hidden
    team = nobody.client.get("/teams/zyxteam-laboratory/").content.decode()
    assert "Known" in team
    assert "Planted" not in team


def test_its_team_sees_it_as_it_is(planted: System, signed_in: Client, api: Api) -> None:
    page = signed_in.get("/systems/planted/edit/").content.decode()
    assert "zyxpaper" in page
    reference = planted.entries.get().submission_reference
    assert "Zyxteam" in signed_in.get(f"/submissions/{reference}/").content.decode()
    assert api.get(f"submissions/{reference}/").body["team"] == "Zyxteam Laboratory"


def test_a_planted_leak_is_found(planted: System, nobody: Api) -> None:
    """The negative control: a page that reads the row itself is noticed."""
    System.objects.filter(pk=planted.pk).update(description="By zyxteam.")
    assert {marker for _, marker in leaks(pages(nobody.client, planted, timezone.now()))} == {"zyxteam"}


def test_it_lasts_nine_months_of_the_calendar_from_the_first_time(db: None) -> None:
    system = make_system("New")
    now = timezone.now()
    latest = latest_end(None, now)
    with pytest.raises(EmbargoRefused, match="months after it began"):
        make_anonymous(system, latest + timedelta(days=1))
    with pytest.raises(EmbargoRefused):
        make_anonymous(system, now.date())
    make_anonymous(system, in_days(30).date())
    history = System.history.filter(id=system.pk, anonymous_until__isnull=False)  # type: ignore[attr-defined]
    history.update(history_date=now - timedelta(days=100))
    end = latest_end(system, now)
    assert end == latest_end(None, now - timedelta(days=100))
    anonymity.end_anonymity(system)
    with pytest.raises(EmbargoRefused):
        make_anonymous(system, end + timedelta(days=1))
    make_anonymous(system, end)


def test_the_last_of_a_month_ends_on_the_last_of_a_shorter_one() -> None:
    assert str(latest_end(None, datetime(2026, 5, 31, tzinfo=UTC))) == "2027-02-28"


def test_what_everyone_has_seen_cannot_be_made_anonymous(db: None) -> None:
    system = make_system("Seen")
    dataset = scored_dataset()
    score(dataset, system, public=False, ndcg=0.5)
    make_anonymous(system, in_days(9).date())
    anonymity.end_anonymity(system)
    score(dataset, system, ndcg=0.6)
    with pytest.raises(EmbargoRefused, match="already been public"):
        make_anonymous(system, in_days(9).date())


def test_a_team_changes_the_day_on_its_page_and_a_stranger_finds_none(
    planted: System, signed_in: Client, stranger: Api
) -> None:
    assert stranger.user is not None
    stranger.client.force_login(stranger.user)
    assert stranger.client.post("/systems/planted/anonymity/", {"action": "lift"}).status_code == 404
    late = latest_end(planted, timezone.now()) + timedelta(days=1)
    answer = signed_in.post("/systems/planted/anonymity/", {"anonymous_until": late.isoformat()})
    assert answer.status_code == 400
    assert "at the latest" in answer.content.decode()
    assert planted.anonymous_until is not None
    assert (
        f'value="{planted.anonymous_until:%Y-%m-%d}"' in signed_in.get("/systems/planted/anonymity/").content.decode()
    )
    # An empty field is no wish: names that are out stay out.
    assert signed_in.post("/systems/planted/anonymity/", {"anonymous_until": ""}).status_code == 400
    assert signed_in.post("/systems/planted/anonymity/", {"action": "lift"}).status_code == 302
    planted.refresh_from_db()
    assert planted.anonymous_until is None
    assert "Zyxteam" in stranger.client.get("/systems/planted/").content.decode()


def test_a_facet_finds_anonymous_systems_apart_from_the_sites_own(planted: System, nobody: Api) -> None:
    rows = nobody.get("datasets/demo/board/?team=anonymous").body["rows"]
    assert [row["system"] for row in rows] == ["Planted"]
    rows = nobody.get("datasets/demo/board/?team=this-site").body["rows"]
    assert [row["system"] for row in rows] == ["BM25"]


def test_a_copy_without_names_is_never_the_row_itself(planted: System) -> None:
    assert shown_names.public_system(planted).team is None
    assert planted.team is not None


def test_an_anonymous_system_is_not_merged_with_one_that_has_a_name(db: None) -> None:
    anonymous = make_system("Blind")
    named = make_system("Named", team=anonymous.team)
    assert not merge_conflicts(anonymous, named)
    make_anonymous(anonymous, in_days(9).date())
    for one, other in ((anonymous, named), (named, anonymous)):
        assert any("anonymous" in conflict for conflict in merge_conflicts(one, other))
