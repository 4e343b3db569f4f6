"""The submit page, the list and the status page, as their readers see them."""

from __future__ import annotations

import re
from datetime import timedelta
from html import escape
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.boards.system.standing import Standing
from leaderboard.core.measures import measure_anchor
from leaderboard.core.text.numbers import direction
from leaderboard.datasets.files import offer_file, store_file
from leaderboard.models import Dataset, DatasetFile, Membership, System, Team, User
from leaderboard.results.significance.statements import Statement
from submissions.accounts.teams import automatic_name, personal_team, rename_team
from submissions.models import Job, State, Submission, Worker
from submissions.queue.queue import claim
from submissions.status.description import Score
from tests.leaderboard.certainty import compute_certainty
from tests.pages import one_line
from tests.submissions.clients import Api, upload
from tests.submissions.collections import QUERIES, run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

NEW = {
    "action": "submit",
    "new-name": "Careful",
    "new-architecture": "dense",
    "new-training_none": "on",
    "new-parameters": "dimension=768\npooling=mean",
    "public": "yes",
}


def test_a_new_system_is_submitted_and_followed_to_its_row(demo: Dataset, baseline: None, signed_in: Client) -> None:
    response = signed_in.post("/submit/", {**NEW, "run:demo": upload(run_text())}, follow=True)
    page = response.content.decode()
    assert response.redirect_chain
    assert "No worker is online" in page
    assert "every 2s" in page
    work()
    compute_certainty(demo)
    submission = Submission.objects.get()
    page = signed_in.get(submission.get_absolute_url()).content.decode()
    assert "every 2s" not in page
    assert "RR@10" in page
    assert "1.000" in page
    interval = r'95% CI <span class="nowrap">[+−][\d.]+ to [+−][\d.]+</span>'
    assert re.search(interval, page), "of the primary measure"
    assert "+100.0%" in page  # the baseline finds the second relevant document at rank 2
    assert 'href="/datasets/demo/"' in page
    system = System.objects.get(name="Careful")
    assert system.parameters == {"dimension": 768, "pooling": "mean"}
    assert system.training_declared


def list_stages(client: Client, identifier: str) -> list[tuple[str, str]]:
    """Return the state and the name of each stage on the status page."""
    page = one_line(client.get(f"/submissions/{identifier}/").content.decode())
    stages = re.search(r'<ol class="timeline".*?</ol>', page)
    assert stages is not None
    return re.findall(r'<li(?: class="is-(\w+)")?[^>]*> ?<b>([^<]+)</b>', stages[0])


def test_the_stages_of_a_submission_have_times_and_durations(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    names = ["Received", "Checked", "Started", "Scored", "Published"]
    assert list_stages(signed_in, identifier) == list(zip(["done", "done", "current", "", ""], names, strict=True))
    claim([Job.Queue.SCORE], "worker")
    assert [state for state, _ in list_stages(signed_in, identifier)] == ["done", "done", "done", "current", ""]
    Job.objects.update(state=State.QUEUED, started_at=None, lease_expires_at=None)
    work()
    assert [state for state, _ in list_stages(signed_in, identifier)] == ["done"] * 5
    page = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    assert re.search(r"<b>Started</b>.*?waited \d+ s.*?<b>Scored</b>.*?took \d+ s.*?<b>Published</b> ?<time", page)
    Job.objects.update(state=State.VALIDATING, entry=None)
    assert [state for state, _ in list_stages(signed_in, identifier)] == ["done", "current", "", "", ""]
    Job.objects.update(state=State.FAILED, error_code="crashed")
    assert list_stages(signed_in, identifier)[3:] == [("failed", "Scoring failed"), ("", "Published")]
    Job.objects.update(state=State.REJECTED)
    assert list_stages(signed_in, identifier)[1] == ("failed", "Rejected")


def test_polling_ends_when_everything_has_ended(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    assert signed_in.get(f"/submissions/{identifier}/progress/").status_code == 200
    work()
    response = signed_in.get(f"/submissions/{identifier}/progress/")
    assert response.status_code == 286
    assert "<html" not in response.content.decode()


def test_a_waiting_submission_says_how_many_are_before_it(
    demo: Dataset, api: Api, signed_in: Client, live_worker: None
) -> None:
    api.submit()
    second = api.submit(configuration="seed 2").body["id"]
    page = signed_in.get(f"/submissions/{second}/").content.decode()
    assert "1 job is ahead of yours" in page
    assert "1 worker online" in page


def test_a_running_job_shows_its_progress(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    job = claim(["score"], "w")
    assert job is not None
    Job.objects.filter(pk=job.pk).update(state=State.SCORING, progress=0.4)
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert page.count("A worker is scoring the run") == 1
    assert 'value="0.4000"' in page


def test_a_fault_of_ours_says_sorry_and_its_id(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    Job.objects.update(state=State.FAILED, error_code="fault", fault="abcd1234")
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "fault on our side" in page
    assert "abcd1234" in page
    assert "The site does not try again by itself" not in page  # the file is no longer stored
    assert "Submit the files again" in page


def test_warnings_stay_on_the_status_page(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit(run_text(["q1", "q2"])).body["id"]
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "10 of the 12 queries of the dataset are missing" in page
    work()
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    warning = "8 of the 10 judged queries are missing; they score 0"
    assert page.count(warning) == 1
    assert page.index(warning) < page.index('<table class="table scores">'), "beside the result, above the scores"


def test_values_are_kept_when_something_is_missing(demo: Dataset, signed_in: Client) -> None:
    response = signed_in.post("/submit/", {**NEW, "new-name": "", "new-licence": "MIT", "run:demo": upload(run_text())})
    page = response.content.decode()
    assert response.status_code == 400
    assert 'value="MIT"' in page
    assert "Enter the system&#x27;s name" in page
    assert "valid files are kept" in page
    assert not Submission.objects.exists()


def test_training_data_is_named_or_declared_none_not_both(demo: Dataset, signed_in: Client) -> None:
    response = signed_in.post("/submit/", {**NEW, "new-training_datasets": "MS MARCO", "run:demo": upload(run_text())})
    assert "Either name the training datasets" in response.content.decode()


def test_a_refused_file_is_explained_and_nothing_is_stored(demo: Dataset, signed_in: Client) -> None:
    response = signed_in.post("/submit/", {**NEW, "run:demo": upload("junk\n", "junk.txt")})
    page = response.content.decode()
    assert response.status_code == 400
    assert "Nothing was submitted" in page
    assert "junk.txt" in page
    assert 'value="Careful"' in page
    assert not System.objects.filter(name="Careful").exists()


def test_without_a_file_the_page_says_so(demo: Dataset, signed_in: Client) -> None:
    assert "No run file was sent" in signed_in.post("/submit/", NEW).content.decode()
    page = signed_in.post("/submit/", {"action": "submit"}).content.decode()
    for missing in ("No run file was sent", "Enter the system&#x27;s name", "Choose an architecture"):
        assert missing in page, "all missing inputs are listed at once"


def test_my_system_is_offered_and_somebody_elses_is_not(
    demo: Dataset, api: Api, stranger: Api, signed_in: Client
) -> None:
    api.submit()
    stranger.submit(system="Theirs")
    page = signed_in.get("/submit/").content.decode()
    assert '<option value="My system" data-architecture="dense">' in page
    assert "Theirs" not in page
    response = signed_in.post(
        "/submit/", {"action": "submit", "new-name": "Theirs", "run:demo": upload(run_text(depth=9))}
    )
    assert response.status_code == 400  # a new system needs an architecture
    response = signed_in.post(
        "/submit/",
        {
            "action": "submit",
            "new-name": "My system",
            "configuration": "top 9",
            "run:demo": upload(run_text(depth=9)),
        },
    )
    assert response.status_code == 302
    assert System.objects.filter(name="My system").count() == 1


def test_an_existing_system_is_not_changed_by_a_submission(demo: Dataset, api: Api, signed_in: Client) -> None:
    api.submit()
    page = signed_in.get("/submit/?system=my-system").content.decode()
    assert 'value="My system"' in page
    assert '<option value="dense" selected>' in page
    sent = {"action": "submit", "new-name": "My system", "configuration": "top 9"}
    for fields, told in (
        ({"new-architecture": "lexical"}, "has another value"),
        ({"new-description": "Other."}, "has another value"),
        ({"new-training_none": "on"}, "has another value"),
        ({"anonymous_until": str(timezone.now().date() + timedelta(days=9))}, "has another value"),
    ):
        response = signed_in.post("/submit/", {**sent, **fields, "run:demo": upload(run_text(depth=9))})
        assert response.status_code == 400, fields
        assert told in response.content.decode(), fields
    assert Submission.objects.count() == 1
    same = {**sent, "new-architecture": "dense", "run:demo": upload(run_text(depth=9))}
    assert signed_in.post("/submit/", same).status_code == 302


def test_a_system_of_another_team_is_found_unless_a_team_is_chosen(
    demo: Dataset, alice: User, signed_in: Client
) -> None:
    own, other = personal_team(alice), Team.objects.create(slug="other", name="Other")
    Membership.objects.create(team=other, user=alice)
    System.objects.create(slug="theirs", name="Shared name", team=other, architecture="dense")
    sent = {"action": "submit", "new-name": "Shared name", "new-architecture": "dense"}
    assert signed_in.post("/submit/", {**sent, "run:demo": upload(run_text())}).status_code == 302
    assert Submission.objects.get().team == other
    response = signed_in.post("/submit/", {**sent, "team": own.slug, "run:demo": upload(run_text(depth=9))})
    assert response.status_code == 302
    assert System.objects.filter(name="Shared name", team=own).exists()


def test_the_page_says_that_no_worker_scores_runs(demo: Dataset, signed_in: Client) -> None:
    assert "You can submit: your run waits" in signed_in.get("/submit/").content.decode()
    assert "No worker can score runs now" in (anonymous := Client().get("/submit/").content.decode())
    assert "You can check a run. Submitted runs wait" in anonymous
    assert "You can submit" not in anonymous
    now = Worker.objects.database_now()
    Worker.objects.create(name="w", queues=["score"], started_at=now, seen_at=now)
    assert "No worker can score runs now" not in signed_in.get("/submit/").content.decode()


def test_four_fields_are_visible_and_the_others_folded(demo: Dataset, signed_in: Client) -> None:
    page = one_line(signed_in.get("/submit/").content.decode())
    before, more = page.split('<details class="more">')
    form = before.partition('<form class="submit')[2]
    zone = r'<div class="drop-zone"><input type="file"[^>]*><p class="drop-hint"><span>Drop run files here.*?TREC runs'
    assert re.search(zone, form)
    bar = more.partition('<div class="submit-bar">')[2]
    assert bar.index("Visibility") < bar.index('name="public"') < bar.index('value="submit"')
    names = re.findall(r'<(?:input|select|textarea)[^>]* name="([^"]+)"', form)
    assert names[1:] == ["several", "dataset", "new-name", "new-architecture"]
    assert "selected" not in form.partition('name="dataset"')[2].partition("</select>")[0]
    linked = one_line(signed_in.get("/submit/?dataset=demo").content.decode()).partition('name="dataset"')[2]
    assert '<option value="demo" selected>' in linked.partition("</select>")[0]
    for name in (
        "public",
        "seeds",
        "configuration",
        "reusable",
        "note",
        "new-variant_of",
        "anonymous_until",
    ):
        assert f'name="{name}"' in more
    page = signed_in.post("/submit/", {**NEW, "new-code_url": "ftp://x"}).content.decode()
    assert '<details class="more" open>' in page
    checked = {"action": "check", "several": upload(run_text(), "demo.txt")}
    page = signed_in.post("/submit/", {**checked, "public": "yes"}).content.decode()
    assert '<details class="more">' in page
    page = signed_in.post("/submit/", {**checked, "public": "no"}).content.decode()
    assert '<details class="more">' in page
    page = signed_in.post("/submit/", {**checked, "note": "x"}).content.decode()
    assert '<details class="more" open>' in page


def test_several_files_named_after_their_datasets(demo: Dataset, secret: Dataset, signed_in: Client) -> None:
    files = [upload(run_text(), "demo.txt"), upload(run_text(), "secret.txt")]
    assert signed_in.post("/submit/", {**NEW, "several": files}).status_code == 302
    assert Job.objects.count() == 2


def test_the_page_shows_quotas_and_sample_runs(
    demo: Dataset, secret: Dataset, signed_in: Client, tmp_path: Path
) -> None:
    assert demo.current_version
    run = tmp_path / "run.txt"
    run.write_text(run_text(), encoding="utf-8")
    offer_file(demo.current_version, DatasetFile.Kind.EXAMPLE_RUN, store_file(run), "demo.run.txt")

    def panel(query: str) -> str:
        page = one_line(signed_in.get(f"/submit/{query}").content.decode())
        assert 'href="/datasets/demo/files/demo.run.txt" download>example run</a>' in page
        assert page.count('href="/datasets/demo/files/demo.run.txt"') == 1
        return re.sub("<[^>]*>", "", page.partition('id="check-result"')[2].partition("<details")[0])

    assert re.search(f"{secret.name}: ?0 of [0-9]+ submissions today", panel(""))
    assert "Other datasets have no daily limit." in panel("")
    assert secret.name not in panel("?dataset=demo")


def test_the_list_shows_state_scores_and_visibility(demo: Dataset, api: Api, signed_in: Client, alice: User) -> None:
    first = api.submit().body["id"]
    work()
    scores = api.get(f"submissions/{first}/").body["jobs"][0]["scores"]
    api.submit(run_text(depth=9), public="false", configuration="shallow")
    page = signed_in.get("/submissions/").content.decode()
    assert f"<b>{scores['nDCG@10']:.3f}</b>" in page
    assert re.search(r'<a href="/datasets/demo/\?pin=[\w-]+">1st of 1</a>', page)
    assert "on Demo" not in page, "columns instead of a sentence"
    assert "shallow" in page
    assert "private" in page
    assert "queued" in page


def test_the_list_has_no_p_values(demo: Dataset, baseline: None, api: Api, signed_in: Client) -> None:
    submission = api.submit().body["id"]
    work()
    compute_certainty(demo)
    page = one_line(signed_in.get(f"/submissions/{submission}/").content.decode())
    assert ": p = " in page
    assert re.search(r'<td class="n up "> ?<span>[+−]0', page), "a dashed box is around the value alone"
    page = one_line(signed_in.get("/submissions/").content.decode())
    assert re.search("vs BM25 · (not )?significant[^:<]*</span>", page)


@pytest.mark.parametrize(("better", "worse", "color"), [(True, False, "up"), (False, True, "down"), (False, False, "")])
def test_the_list_colors_significant_differences(
    demo: Dataset, baseline: None, api: Api, signed_in: Client, monkeypatch: pytest.MonkeyPatch,
    better: bool, worse: bool, color: str,
) -> None:  # fmt: skip
    api.submit()
    work()
    statement = Statement(better=better, worse=worse)
    standing = Standing("Demo", "demo", "nDCG@10", 0.5, 0.1 if better else -0.1, "BM25", False, statement)
    monkeypatch.setattr(
        "submissions.status.description.standings", lambda entries: {entry.pk: standing for entry in entries}
    )
    page = one_line(signed_in.get("/submissions/").content.decode())
    assert re.findall(r'<span class="(up|down|muted) ?">[+−]0', page) == [color or "muted"]


@pytest.mark.parametrize(("delta", "text"), [(0.0002, "+0.000"), (-0.0002, "−0.000"), (0.0, "±0.000")])
def test_the_list_shows_differences_as_boards_do(
    demo: Dataset, api: Api, signed_in: Client, monkeypatch: pytest.MonkeyPatch, delta: float, text: str
) -> None:
    api.submit()
    work()
    standing = Standing("Demo", "demo", "nDCG@10", 0.5, delta, "BM25", False, Statement())
    monkeypatch.setattr(
        "submissions.status.description.standings", lambda entries: {entry.pk: standing for entry in entries}
    )
    page = one_line(signed_in.get("/submissions/").content.decode())
    assert re.findall(r'<span class="muted">([+−±]0[^<]*)', page) == [text]


@pytest.mark.parametrize(
    ("rank", "statement", "others_tied", "text"),
    [
        (3, Statement(ranks=(2, 4)), 2, "range 2–4"),
        (3, Statement(ranks=(3, 3)), 0, ""),
        (3, Statement(tied_with_best=True), 2, "not separable from the best"),
        (1, Statement(tied_with_best=True), 2, "not separable from 2 others"),
        (1, Statement(tied_with_best=True), 1, "not separable from 1 other"),
        (1, Statement(tied_with_best=True), 0, ""),
        (3, Statement(), 0, ""),
    ],
)
def test_the_list_shows_how_certain_a_rank_is(
    demo: Dataset, api: Api, signed_in: Client, monkeypatch: pytest.MonkeyPatch,
    rank: int, statement: Statement, others_tied: int, text: str,
) -> None:  # fmt: skip
    api.submit()
    work()
    standing = Standing(
        "Demo", "demo", "nDCG@10", 0.5, 0.1, "BM25", False, statement, rank=rank, of=9, others_tied=others_tied
    )
    monkeypatch.setattr(
        "submissions.status.description.standings", lambda entries: {entry.pk: standing for entry in entries}
    )
    page = one_line(signed_in.get("/submissions/").content.decode())
    certainty = page.partition(" of 9</a>")[2].partition("</li>")[0]
    assert re.sub("<[^>]*>", "", certainty).strip() == text


def test_the_list_shows_how_many_queries_a_run_misses(
    demo: Dataset, secret: Dataset, api: Api, signed_in: Client
) -> None:
    for system, dataset in (("Short", "demo"), ("Secret", "secret")):
        api.submit(run_text(QUERIES[:2]), system=system, dataset=dataset)
    api.submit(system="Whole")
    work()

    def row(system: str) -> str:
        page = one_line(signed_in.get(f"/submissions/?q={system}").content.decode())
        return re.sub("<[^>]*>", "", page.partition("<tbody>")[2])

    assert "8 queries missing" in one_line(row("Short"))
    assert "missing" not in row("Whole")
    assert "missing" not in row("Secret"), "the number would disclose which queries are judged"
    Job.objects.filter(dataset=secret).update(submission=Submission.objects.get(system__name="Short"))
    assert one_line(row("Short")).count("8 queries missing") == 1, "also beside one of several datasets"


def test_the_list_is_sorted_by_the_address(demo: Dataset, secret: Dataset, api: Api, signed_in: Client) -> None:
    for system, dataset, depth in (("beta", "demo", 9), ("Alpha", "secret", 8), ("Gamma", "demo", 7)):
        api.submit(run_text(depth=depth), system=system, dataset=dataset)

    def order(query: str) -> list[str]:
        page = signed_in.get(f"/submissions/{query}").content.decode()
        return re.findall(r'<a href="/submissions/\w{12}/">(\w+)</a>', page)

    assert order("") == ["Gamma", "Alpha", "beta"]
    assert order("?sort=oldest") == ["beta", "Alpha", "Gamma"]
    assert order("?sort=system") == ["Alpha", "beta", "Gamma"]
    assert order("?sort=dataset") == ["Gamma", "beta", "Alpha"]
    assert order("?sort=system&state=done") == []
    assert order("?sort=oldest&q=A") == ["beta", "Alpha", "Gamma"]
    assert order("?sort=system&q=+alph") == ["Alpha"]
    assert order("?q=alph&dataset=demo") == []
    page = one_line(signed_in.get("/submissions/?sort=system&q=delta%3Cb%3E").content.decode())
    assert "No system name contains “delta&lt;b&gt;”." in page
    assert '<input type="hidden" name="sort" value="system">' in page
    assert '<a class="button" href="?sort=system">Show all systems</a>' in page
    assert signed_in.get("/submissions/?sort=score").status_code == 400
    Dataset.objects.filter(pk=demo.pk).update(name="Zeta")
    Dataset.objects.filter(pk=secret.pk).update(name="alpha")
    job = Job.objects.get(submission__system__name="beta")
    job.pk, job.dataset, job._state.adding = None, secret, True
    job.save()
    assert order("?sort=dataset") == ["Alpha", "beta", "Gamma"], "the first of several datasets ignores case"


def test_each_row_of_the_list_has_its_actions(demo: Dataset, api: Api, signed_in: Client) -> None:
    addresses = {name: api.submit(run_text(depth=depth), system=name).body["id"] for depth, name in enumerate("AB", 7)}
    work()
    addresses["C"] = api.submit(run_text(depth=9), system="C").body["id"]
    Job.objects.filter(submission=addresses["B"]).update(state=State.FAILED, entry=None)

    def actions(name: str) -> list[str]:
        page = one_line(signed_in.get(f"/submissions/?q={name}").content.decode())
        cell = page.partition('<td class="row-actions">')[2].partition("</td>")[0]
        text = "Details and next steps" if name == "B" else "Details"
        assert f'<a href="/submissions/{addresses[name]}/">{text}<' in cell
        return re.findall(r"(?:<button[^>]*>|<a class=\"button\"[^>]*>) ?([^<]+?) ?<", cell)

    changes = ["Make private", "Let others reuse the runs", "Edit the system"]
    assert actions("A") == [*changes, "Withdraw …"]
    assert actions("B") == [], "only its own page knows whether the files still exist"
    assert actions("C") == ["Cancel", *changes, "Withdraw …"]
    signed_in.post(f"/submissions/{addresses['C']}/cancel/")
    assert actions("C") == ["Submit again"]
    assert 'id="withdraw"' in signed_in.get(f"/submissions/{addresses['A']}/").content.decode()


@pytest.mark.parametrize("sort", ["", "oldest", "system", "dataset"])
def test_rows_of_one_system_link_to_each_other(
    demo: Dataset, secret: Dataset, api: Api, signed_in: Client, sort: str
) -> None:
    for system, dataset in (("Same", "demo"), ("Same tuned", "demo"), ("Same", "secret")):
        api.submit(system=system, dataset=dataset)
    page = one_line(signed_in.get(f"/submissions/?sort={sort}").content.decode())
    assert len(re.findall(r'<a class="small" href="\?[^"]*system=same">', page)) == page.count("2 submissions") == 2
    assert "system=same-tuned" not in page
    page = one_line(signed_in.get(f"/submissions/?sort={sort}&system=same").content.decode())
    assert len(re.findall(r'<th scope="row">', page)) == 2, "the name of the other system contains this one"
    assert "2 submissions" not in page
    assert "Only submissions of <b>Same</b>." in page
    assert f'<a href="?sort={sort}">Show all systems</a>' in page
    assert "2 submissions" not in signed_in.get("/submissions/?dataset=secret").content.decode()
    page = signed_in.get("/submissions/?system=same&state=done").content.decode()
    assert "No submission of this system was found." in page


def test_the_list_is_filtered_by_state_and_dataset(demo: Dataset, secret: Dataset, api: Api, signed_in: Client) -> None:
    first = api.submit().body["id"]
    work()
    second = api.submit(run_text(depth=9), dataset="secret").body["id"]

    def listed(query: str) -> set[str]:
        page = signed_in.get(f"/submissions/{query}").content.decode()
        return {each for each in (first, second) if f"/submissions/{each}/" in page}

    def counts(query: str) -> list[int]:
        page = one_line(signed_in.get(f"/submissions/{query}").content.decode())
        return [int(count) for count in re.findall(r'<span class="muted">(\d+)</span></a>', page)]

    assert counts("") == counts("?state=done") == [2, 1, 1, 0]
    assert counts("?dataset=secret") == [1, 1, 0, 0]
    assert listed("") == {first, second}
    assert listed("?state=done") == {first}
    assert listed("?state=waiting") == {second}
    assert listed("?state=unscored") == set()
    assert listed("?dataset=secret") == {second}
    assert listed("?dataset=secret&state=done") == set()
    page = one_line(signed_in.get("/submissions/?dataset=demo&state=unscored").content.decode())
    assert "has the chosen state." in page
    assert '<a class="button" href="?dataset=demo">Show all states</a>' in page
    assert 'href="?dataset=demo&amp;state=done"' in page
    assert "You have no submissions yet" not in page


def test_a_new_member_is_told_what_to_do(signed_in: Client, db: None) -> None:
    page = signed_in.get("/submissions/").content.decode()
    assert "You have no submissions yet" in page
    assert page.count('class="button is-primary"') == 1


def test_pages_have_no_inline_scripts_or_styles(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    for path in ("/submit/", "/submissions/", f"/submissions/{identifier}/", "/account/"):
        page = signed_in.get(path).content.decode()
        assert " style=" not in page
        assert "<style" not in page
        assert " onclick=" not in page
        assert "<script>" not in page


def test_what_changes_a_submission_follows_its_end(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    page = signed_in.get(f"/submissions/{identifier}/").content.decode()
    assert "updates automatically" in page
    assert f"/submissions/{identifier}/cancel/" in page
    waiting = signed_in.get(f"/submissions/{identifier}/progress/").content.decode()
    assert "hx-swap-oob" not in waiting
    work()
    ended = signed_in.get(f"/submissions/{identifier}/progress/").content.decode()
    assert 'id="change" hx-swap-oob="true"' in ended
    assert "cancel" not in ended
    assert "updates automatically" not in ended
    assert "hx-swap-oob" not in Client().get(f"/submissions/{identifier}/progress/").content.decode()


def test_more_unjudged_documents_are_not_shown_as_better(demo: Dataset, baseline: None, signed_in: Client) -> None:
    assert direction(0.25, "Hole@10") == "down"
    assert direction(-0.25, "Hole@10") == "up"
    assert direction(0.25, "nDCG@10") == "up"
    assert Score("Hole@10", 0.5).lower_is_better


def test_a_wrong_field_does_not_hide_what_is_wrong_with_a_file(demo: Dataset, signed_in: Client) -> None:
    wrong = {**NEW, "new-name": "", "run:demo": upload("q1 Q0 d1 1 high mine\n")}
    response = signed_in.post("/submit/", wrong)
    page = one_line(response.content.decode())
    assert response.status_code == 400
    assert "Enter the system&#x27;s name" in page
    assert "The run cannot be scored." in page
    assert "<details><summary>Links and license" in page  # nothing in there is wrong
    page = one_line(signed_in.post("/submit/", {**NEW, "new-code_url": "ftp://x"}).content.decode())
    assert "<details open><summary>Links and license" in page


def test_the_first_submission_asks_for_the_name_of_the_team(demo: Dataset, alice: User, signed_in: Client) -> None:
    rename_team(personal_team(alice), automatic_name(alice))
    assert 'name="team_name"' in signed_in.get("/submit/").content.decode()
    sent = {**NEW, "team_name": "Careful Lab", "run:demo": upload(run_text())}
    assert signed_in.post("/submit/", sent).status_code == 302
    assert Submission.objects.get().team.name == "Careful Lab"
    assert 'name="team_name"' not in signed_in.get("/submit/").content.decode()


def test_a_name_in_a_help_text_is_text(
    demo: Dataset, signed_in: Client, alice: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "<b>x</b>"
    Team.objects.filter(pk=personal_team(alice).pk).update(name=name)
    monkeypatch.setattr("submissions.views.submit_page.automatic_name", lambda user: name)
    page = signed_in.get("/submit/").content.decode()
    assert "“&lt;b&gt;x&lt;/b&gt;”" in page
    assert name not in page


def test_a_canceled_submission_can_be_submitted_again(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    waiting = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    assert "<b>No worker is online.</b>Your job is next." in waiting
    assert '<a href="/status/">Status of the site</a>' in waiting
    assert waiting.count("No worker is online") == 1
    page = signed_in.post(f"/submissions/{identifier}/cancel/", follow=True).content.decode()
    assert "Running jobs stop" not in page
    system = Submission.objects.get().system.name
    assert '<form method="get" action="/submit/">' in one_line(page)
    assert f'<input type="hidden" name="system" value="{escape(system)}">' in page
    form = signed_in.get("/submit/", {"system": system, "dataset": "demo"}).context["system_form"]
    assert form["name"].value() == system


def test_measures_of_a_result_link_to_their_definitions(demo: Dataset, api: Api, signed_in: Client) -> None:
    identifier = api.submit().body["id"]
    work()
    page = one_line(signed_in.get(f"/submissions/{identifier}/").content.decode())
    assert f'<a href="/measures/#{measure_anchor("nDCG@10")}">nDCG@10</a>' in page
