"""Quotas of datasets with hidden judgements: what counts, what is given back, and what people are told."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.models import Dataset, Membership, Team, User
from submissions.intake import runs as intake
from submissions.models import Job, QuotaException, QuotaUse, State, Submission
from submissions.queue.queue import ATTEMPTS, claim, reap
from submissions.quotas import ledger
from submissions.quotas.counting import get_quotas
from submissions.templatetags.quotas import exhausted
from tests.factories import make_user, team_of
from tests.submissions.clients import Answer, Api, upload
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]


@pytest.fixture
def noon(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Sets the clock: `noon(21)` is the 21st of the month at twelve."""

    def at(day: int, month: int = 11, hour: int = 12) -> None:
        moment = datetime(2026, month, day, hour, tzinfo=UTC)
        monkeypatch.setattr(timezone, "now", lambda: moment)

    at(21)
    return at


def send(api: Api, number: int, **fields: Any) -> Answer:
    """A run of its own, under its own label."""
    values = {"dataset": "secret", "configuration": f"c{number}", **fields}
    return api.submit(run_text(skip=number, tag=f"t{number}"), **values)


def used(api: Api, dataset: Dataset) -> tuple[int, int]:
    assert api.user is not None
    quota = get_quotas(api.user, [team_of(api.user)], [dataset])[0]
    return quota.day.used, quota.month.used


def test_the_third_submission_of_a_day_is_refused_until_midnight(api: Api, secret: Dataset, noon: Any) -> None:
    assert [send(api, number).status for number in (1, 2)] == [201, 201]
    refused = send(api, 3)
    assert (refused.status, refused.body["code"]) == (400, "quota")
    problem = refused.problem("quota")
    assert problem["message"] == "You have used 2 of 2 submissions to the hidden dataset Secret today."
    assert problem["hint"] == "You can submit again in 12 h (22 Nov 2026, 00:00 UTC)."
    assert Submission.objects.count() == 2
    noon(22, hour=0)
    assert send(api, 3).status == 201


def test_the_month_counts_too(api: Api, secret: Dataset, noon: Any) -> None:
    for day in range(1, 6):
        noon(day)
        assert send(api, 2 * day).status == send(api, 2 * day + 1).status == 201
    noon(6)
    refused = send(api, 20)
    assert "used 10 of 10 submissions to the hidden dataset Secret this month" in refused.problem("quota")["message"]
    assert "(1 Dec 2026, 00:00 UTC)" in refused.problem("quota")["hint"]
    noon(1, month=12)
    assert send(api, 20).status == 201


def test_open_datasets_count_nothing(api: Api, demo: Dataset) -> None:
    assert [send(api, number, dataset="demo").status for number in range(1, 5)] == [201] * 4
    assert not QuotaUse.objects.exists()


def test_several_seeds_are_one_unit(api: Api, secret: Dataset) -> None:
    files = [upload(run_text(skip=number), f"seed{number}.txt") for number in range(1, 6)]
    answer = api.submit(file=files, dataset=["secret"] * 5)
    assert answer.status == 201, answer.body
    assert used(api, secret) == (1, 1)
    work()
    assert used(api, secret) == (1, 1)


def test_a_team_shares_its_count(api: Api, alice: User, secret: Dataset) -> None:
    bob = make_user("Bob")
    team = team_of(alice)
    Membership.objects.filter(user=bob).delete()
    Membership.objects.create(team=team, user=bob)
    assert send(api, 1).status == 201
    assert send(Api(bob), 2, system="Another").status == 201
    refused = send(Api(bob), 3, system="Another")
    assert refused.problem("quota")["message"].startswith("Your team Alice has used 2 of 2")


def test_another_team_does_not_give_a_person_more(api: Api, alice: User, secret: Dataset) -> None:
    other = Team.objects.create(slug="other", name="Other")
    Membership.objects.create(team=other, user=alice)
    assert [send(api, number).status for number in (1, 2)] == [201, 201]
    quota = get_quotas(alice, [other], [secret])[0]
    assert (quota.day.by_team, quota.day.by_person, quota.left) == (0, 2, 0)


@pytest.mark.parametrize("end", ["failed", "worker_lost"])
def test_our_own_fault_is_given_back(end: str, api: Api, secret: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    identifier = send(api, 1).body["id"]
    if end == "failed":
        monkeypatch.setattr("submissions.jobs.kinds.score.verify_scored_run", lambda *_: 1 / 0)
        Job.objects.update(attempts=ATTEMPTS - 1)
        work()
    else:
        claim(["score"], "lost")
        Job.objects.update(attempts=ATTEMPTS, lease_expires_at=datetime(2020, 1, 1, tzinfo=UTC))
        reap()
    assert Job.objects.get().state == State.FAILED
    assert used(api, secret) == (0, 0)
    assert QuotaUse.objects.get(submission=identifier).refund_reason == "the fault was ours"


def test_what_was_cancelled_before_a_worker_began_is_given_back_and_later_is_not(api: Api, secret: Dataset) -> None:
    first = send(api, 1).body["id"]
    api.post(f"submissions/{first}/cancel/")
    assert used(api, secret) == (0, 0)
    second = send(api, 2).body["id"]
    claim(["score"], "worker")
    api.post(f"submissions/{second}/cancel/")
    work()
    Job.objects.filter(submission=second).update(lease_expires_at=datetime(2020, 1, 1, tzinfo=UTC))
    reap()
    work()
    assert used(api, secret) == (1, 1)


def test_withdrawing_gives_nothing_back(api: Api, secret: Dataset) -> None:
    identifier = send(api, 1).body["id"]
    work()
    api.post(f"submissions/{identifier}/withdraw/", reason="a mistake")
    assert Job.objects.get().state == State.WITHDRAWN
    assert used(api, secret) == (1, 1)
    waiting = send(api, 2).body["id"]
    api.post(f"submissions/{waiting}/withdraw/", reason="a mistake")
    assert used(api, secret) == (2, 2)


@pytest.mark.parametrize("lost", [1, 2])
def test_a_set_of_which_a_run_is_lost_is_given_back_and_tells_nothing(lost: int, api: Api, secret: Dataset) -> None:
    files = [upload(run_text(skip=number), f"seed{number}.txt") for number in (1, 2)]
    identifier = api.submit(file=files, dataset=["secret"] * 2).body["id"]
    Job.objects.filter(pk__in=list(Job.objects.values_list("pk", flat=True)[:lost])).update(
        attempts=ATTEMPTS, lease_expires_at=datetime(2020, 1, 1, tzinfo=UTC)
    )
    reap()
    work()
    assert used(api, secret) == (0, 0)
    answer = api.get(f"submissions/{identifier}/").body
    assert [job["scores"] for job in answer["jobs"]] == [{}, {}], "an incomplete set tells nothing"
    assert answer["seed_sets"][0]["scores"] == {}


def test_a_file_that_a_worker_refuses_costs_nothing_but_is_limited(
    api: Api, secret: Dataset, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings.VALIDATE_AT_ONCE_BYTES = 10
    monkeypatch.setattr(ledger, "REFUSALS_PER_DAY", 2)
    for number in (1, 2):
        assert send(api, number, file=upload(f"q1 Q0 d{number} 1 nan tag\n")).status == 201
        work()
        assert used(api, secret) == (0, 0)
    refused = send(api, 3)
    assert refused.body["code"] == "too_many_refusals"
    assert send(api, 3, dataset="secret").status == 400


def test_of_files_that_are_refused_at_once_no_more_than_the_limit_are_told_why(
    api: Api, secret: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "REFUSALS_PER_DAY", 3)
    codes: list[str] = []
    read = intake.check_files

    def read_after_others(runs: Any) -> Any:
        if len(begun) < 5:
            send_another()
        return read(runs)

    def send_another() -> None:
        begun.append(True)
        codes.append(api.submit("not a run\n", dataset="secret").body["code"])

    begun: list[bool] = []
    monkeypatch.setattr(intake, "check_files", read_after_others)
    send_another()
    assert codes == ["invalid_run"] * 3 + ["too_many_refusals"] * 2
    assert QuotaUse.objects.filter(kind="refusal").count() == 3


def test_refused_files_are_free_up_to_a_limit_by_day(
    api: Api, secret: Dataset, demo: Dataset, noon: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger, "REFUSALS_PER_DAY", 3)
    for _ in range(3):
        assert api.submit("not a run\n", dataset="secret").body["code"] == "invalid_run"
    assert used(api, secret) == (0, 0)
    refused = send(api, 1)
    assert refused.body["code"] == "too_many_refusals"
    assert "3 of your files for hidden datasets were refused today" in refused.body["detail"]
    assert api.submit("not a run\n", dataset="demo").body["code"] == "invalid_run"
    assert send(api, 1, dataset="demo").status == 201
    assert api.check(run_text(), dataset="secret").status == 200
    noon(22)
    assert send(api, 1).status == 201


def test_a_spent_quota_costs_no_refusal(api: Api, secret: Dataset) -> None:
    for number in range(1, 6):
        send(api, number)
    assert QuotaUse.objects.filter(kind=QuotaUse.Kind.REFUSAL).count() == 0


def test_an_exception_counts_until_its_day(api: Api, alice: User, secret: Dataset, noon: Any) -> None:
    QuotaException.objects.create(
        team=team_of(alice), dataset=secret, daily=3, monthly=None, reason="a workshop",
        until=datetime(2026, 11, 22, tzinfo=UTC),
    )  # fmt: skip
    assert [send(api, number).status for number in (1, 2, 3, 4)] == [201, 201, 201, 400]
    noon(22)
    assert [send(api, number).status for number in (4, 5, 6)] == [201, 201, 400]


def test_an_exception_for_one_dataset_goes_before_one_for_all(alice: User, secret: Dataset) -> None:
    team = team_of(alice)
    QuotaException.objects.create(team=team, daily=0, monthly=0, reason="probes")
    assert get_quotas(alice, [team], [secret])[0].spent
    QuotaException.objects.create(team=team, dataset=secret, daily=None, monthly=None, reason="ours")
    assert get_quotas(alice, [team], [secret])[0].left is None


def test_who_may_submit_nothing_is_told_so(api: Api, alice: User, secret: Dataset) -> None:
    QuotaException.objects.create(team=team_of(alice), daily=0, monthly=0, reason="probes")
    problem = send(api, 1).problem("quota")
    assert problem["message"] == "Secret does not accept submissions from your team Alice at present."
    assert problem["hint"] == "Ask a curator."


def test_of_several_datasets_those_used_up_are_named(api: Api, secret: Dataset, demo: Dataset) -> None:
    for number in (1, 2):
        send(api, number)
    both = api.submit(
        file=[upload(run_text(skip=5), "a.txt"), upload(run_text(skip=5), "b.txt")],
        dataset=["secret", "demo"], configuration="both",
    )  # fmt: skip
    assert both.body["code"] == "quota"
    assert Submission.objects.count() == 2


def test_the_api_tells_what_is_left(api: Api, alice: User, secret: Dataset, demo: Dataset, noon: Any) -> None:
    before = api.get("quotas/").body
    assert [quota["dataset"] for quota in before["quotas"]] == ["secret"]
    assert before["quotas"][0]["left"] == 2
    accepted = send(api, 1).body
    assert accepted["charges"][0]["counted"] is True
    assert accepted["charges"][0]["quota"]["left"] == 1
    quota = api.get("quotas/?dataset=secret").body["quotas"][0]
    assert quota["team"] == team_of(alice).slug
    assert quota["day"] == {
        "used": 1, "by_person": 1, "by_team": 1, "limit": 2, "left": 1, "resets_at": "2026-11-22T00:00:00+00:00",
    }  # fmt: skip
    assert quota["month"]["left"] == 9
    send(api, 2)
    assert send(api, 3).body["quotas"][0]["resets_at"] == "2026-11-22T00:00:00+00:00"
    assert api.get("quotas/").body["refusals"]["left"] == 20
    assert api.get("submissions/").body["results"][0]["charges"][0]["quota"] is None


def test_nobody_has_quotas(nobody: Api, secret: Dataset) -> None:
    assert nobody.get("quotas/").status == 401


def test_what_a_submission_cost_is_for_its_team_alone(api: Api, stranger: Api, secret: Dataset) -> None:
    identifier = send(api, 1).body["id"]
    work()
    assert stranger.get(f"submissions/{identifier}/").body["charges"] == []
    assert "Quota" not in stranger.client.get(f"/submissions/{identifier}/").content.decode()


def test_pages_show_what_is_used(
    api: Api, alice: User, secret: Dataset, demo: Dataset, signed_in: Client, noon: Any
) -> None:
    def shown(address: str) -> str:
        text = signed_in.get(address).content.decode()
        return " ".join(re.sub(r"<[^>]+>", " ", text).split())

    used = "1 of 2 submissions today, 1 of 10 this month"
    identifier = send(api, 1).body["id"]
    assert used in shown("/submit/")
    assert f"{used} · resets in 12 h ( 22 Nov 2026, 00:00 UTC )" in shown("/submit/?dataset=secret")
    assert used in shown("/datasets/secret/")
    assert "submissions today" not in shown("/datasets/demo/")
    assert "submissions today" not in Client().get("/datasets/secret/").content.decode()
    assert f"Secret counts toward the quota. Used: {used}" in shown(f"/submissions/{identifier}/")
    api.post(f"submissions/{identifier}/cancel/")
    status = shown(f"/submissions/{identifier}/")
    assert "Secret does not count toward the quota, because it was canceled before a worker began." in status
    send(api, 2)
    send(api, 3)
    assert "None left : 2 of 2 submissions today, 2 of 10 this month · Resets in 12 h" in shown("/submit/")
    Dataset.objects.filter(slug="demo").update(name="Zebra")
    page = signed_in.get("/submit/").content.decode()
    assert page.index('value="demo"') < page.index('value="secret"') < page.index("(quota used up)")
    assert exhausted(get_quotas(alice, [team_of(alice)], [secret])), "the form for models disables the dataset"
    assert not exhausted(())


def test_quotas_are_those_of_the_chosen_team(alice: User, secret: Dataset, signed_in: Client) -> None:
    other = Team.objects.create(slug="other", name="Other")
    Membership.objects.create(team=other, user=alice)
    text = signed_in.post("/submit/", {"team": other.slug, "action": "check"}).content.decode()
    assert text.count("submissions today") == 2, "beside the check, and at the choice of the dataset"
    assert "Quotas are those of <b>Other</b>." in " ".join(text.split())


def test_a_refused_submission_says_when_on_the_page(api: Api, secret: Dataset, signed_in: Client, noon: Any) -> None:
    for number in (1, 2):
        send(api, number)
    answer = signed_in.post(
        "/submit/",
        {
            "new-name": "My system", "configuration": "x", "public": "yes", "action": "submit",
            "run:secret": upload(run_text(skip=7)),
        },
    )  # fmt: skip
    assert answer.status_code == 400
    assert "You can submit again in 12 h (22 Nov 2026, 00:00 UTC)." in answer.content.decode()
