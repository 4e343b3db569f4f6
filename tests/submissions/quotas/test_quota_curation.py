"""What curators do about quotas and flags, in the admin and by commands: with a reason, and recorded."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import Permission
from django.core.management import CommandError, call_command
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from leaderboard.core.permissions import make_curator
from leaderboard.models import AuditRecord, Dataset, Entry, User
from submissions.models import Flag, QuotaException, QuotaUse, Submission
from submissions.quotas.counting import get_quotas
from tests.curating import save
from tests.factories import make_user, team_of
from tests.pages import one_line
from tests.submissions.clients import Api
from tests.submissions.collections import run_text

pytestmark = pytest.mark.django_db

WHY = "the site was down that day"


@pytest.fixture
def carol() -> User:
    person = make_user("Carol")
    make_curator(person)
    return person


@pytest.fixture
def desk(carol: User) -> Client:
    client = Client()
    client.force_login(carol)
    return client


@pytest.fixture
def sent(api: Api, secret: Dataset) -> Submission:
    answer = api.submit(run_text(), dataset="secret")
    return Submission.objects.get(pk=answer.body["id"])


def used(person: User, dataset: Dataset) -> int:
    return get_quotas(person, [team_of(person)], [dataset])[0].day.used


def limits(person: User, dataset: Dataset) -> tuple[int | None, int | None]:
    quota = get_quotas(person, [team_of(person)], [dataset])[0]
    return quota.day.limit, quota.month.limit


def act(desk: Client, page: str, action: str, row: Any, **fields: str) -> Any:
    data = {"action": action, "_selected_action": [str(row.pk)], **fields}
    return desk.post(reverse(f"admin:submissions_{page}_changelist"), data, follow=True)


def test_a_unit_is_given_back_with_a_reason(
    desk: Client, carol: User, alice: User, secret: Dataset, sent: Submission
) -> None:
    use = QuotaUse.objects.get()
    assert "Refund quota" in act(desk, "quotause", "refund", use).content.decode()
    assert act(desk, "quotause", "refund", use, confirmed="yes", why="").status_code == 400
    assert used(alice, secret) == 1
    assert "Refunded" in act(desk, "quotause", "refund", use, confirmed="yes", why=WHY).content.decode()
    assert used(alice, secret) == 0
    record = AuditRecord.objects.get(action="quota refunded")
    assert (record.actor, record.reason, record.dataset) == (carol, WHY, secret)
    again = act(desk, "quotause", "refund", use, confirmed="yes", why=WHY)
    assert "was refunded before" in again.content.decode()


def test_a_team_gets_another_quota_with_a_history(desk: Client, carol: User, alice: User, secret: Dataset) -> None:
    address = reverse("admin:submissions_quotaexception_add")
    values = {"team": str(team_of(alice).pk), "dataset": str(secret.pk), "daily": "5", "monthly": ""}
    assert save(desk, address, why="a workshop", **values).status_code == 302
    row = QuotaException.objects.get()
    assert (row.daily, row.monthly, row.reason) == (5, None, "a workshop")
    assert row.history.get().history_user == carol
    assert AuditRecord.objects.filter(action="added", reason="a workshop").exists()
    assert limits(alice, secret) == (5, None)
    change = reverse("admin:submissions_quotaexception_change", args=[row.pk])
    assert save(desk, change, why="it is over", daily="2").status_code == 302
    row.refresh_from_db()
    assert (row.daily, row.reason) == (2, "it is over")


def make_flag(sent: Submission, secret: Dataset) -> Flag:
    """Return a flag that names an earlier submission and a deleted one."""
    columns = {"submitter": sent.submitter, "team": sent.team, "system": sent.system}
    earlier, _ = Submission.objects.get_or_create(pk="earlier", defaults=columns)
    chain = [earlier.pk, "deleted"]
    details = {"submission": earlier.pk, "compared": 12, "same_documents": 11, "same_order": 9, "chain": chain}
    return Flag.objects.create(
        kind=Flag.Kind.NEARLY_THE_SAME, dataset=secret, team=sent.team, submission=sent, details=details
    )


@pytest.mark.parametrize(("action", "state"), [("clear", "cleared"), ("confirm", "confirmed")])
def test_a_flag_is_settled_with_a_note(
    action: str, state: str, desk: Client, carol: User, secret: Dataset, sent: Submission
) -> None:
    flag = make_flag(sent, secret)
    listed = desk.get(reverse("admin:submissions_flag_changelist"))
    page = listed.content.decode()
    assert "11 of 12 queries have the same top ten documents" in page
    assert f'form="decide-{flag.pk}" name="action" value="{action}"' in page
    assert f'<form method="post" id="decide-{flag.pk}">' in page
    assert sent.get_absolute_url() in page
    assert '<a href="/submissions/earlier/">' in page
    decided = reverse("admin:submissions_flag_change", args=[flag.pk])
    page = one_line(desk.get(decided).content.decode())
    for part in ("Flagged run", sent.get_absolute_url(), "Similar run", "/submissions/earlier/", "11 (92%)", "9 (75%)"):
        assert part in page
    assert page.index("The flag is closed.") < page.index("The flag stays on record")
    assert 'maxlength="300"' in page
    assert f'name="action" value="{action}"' in page
    assert '<input type="hidden" name="confirmed" value="yes">' in page
    act(desk, "flag", action, flag, confirmed="yes", why="they wrote to us")
    flag.refresh_from_db()
    assert (flag.state, flag.note, flag.settled_by) == (state, "they wrote to us", carol)
    assert AuditRecord.objects.get(action=f"flag {state}").reason == "they wrote to us"
    page = one_line(desk.get(decided).content.decode())
    assert f"<b>{state}</b>" in page
    assert "they wrote to us" in page
    assert "Flagged run" in page
    assert 'name="action"' not in page


def test_a_confirmed_run_is_quarantined_with_a_public_reason(
    desk: Client, carol: User, secret: Dataset, sent: Submission
) -> None:
    flag = make_flag(sent, secret)
    entry = Entry.objects.create(
        dataset=secret, system=sent.system, provenance="scored", scores={secret.primary_measure: 0.5}, seed_count=2,
        submission_reference=sent.pk, comparison_group="x", published_at=sent.created_at,
    )  # fmt: skip
    page = one_line(desk.get(reverse("admin:submissions_flag_change", args=[flag.pk])).content.decode())
    assert "Nearly the same as an earlier run" in page
    assert re.search(r'value="quarantine"\s*form="ask">\s*Confirm and quarantine …', page)
    assert "Confirm flags and quarantine results" in act(desk, "flag", "quarantine", flag).content.decode()
    assert act(desk, "flag", "quarantine", flag, confirmed="yes", why="").status_code == 400
    act(desk, "flag", "quarantine", flag, confirmed="yes", why="changes one query at a time")
    flag.refresh_from_db()
    entry.refresh_from_db()
    assert (flag.state, flag.settled_by) == ("confirmed", carol)
    assert (entry.visibility, entry.moderation_reason) == ("quarantined", "changes one query at a time")


def test_a_flag_stays_open_if_its_result_is_not_quarantined(
    desk: Client, carol: User, secret: Dataset, sent: Submission
) -> None:
    """Because the board does not show the result, or the curator may not moderate results."""
    flag = make_flag(sent, secret)
    page = act(desk, "flag", "quarantine", flag, confirmed="yes", why="a probe").content.decode()
    assert "the board does not show the result" in page
    carol.groups.clear()
    carol.user_permissions.set(Permission.objects.filter(codename__in=["change_flag", "view_flag"]))
    page = act(desk, "flag", "quarantine", flag, confirmed="yes", why="a probe").content.decode()
    assert "You do not have permission to quarantine results." in page
    flag.refresh_from_db()
    assert flag.state == "open"


def test_a_flag_shows_both_runs_in_the_order_of_submission_with_their_scores(
    desk: Client, secret: Dataset, sent: Submission
) -> None:
    flag = make_flag(sent, secret)
    measure = secret.primary_measure
    for run, score in ((flag.submission, 0.5), (flag.similar_runs[0], 0.25)):
        Entry.objects.create(
            dataset=secret, system=run.system, provenance="scored", scores={measure: score}, seed_count=2,
            submission_reference=run.pk, configuration=run.pk, comparison_group="x", published_at=run.created_at,
        )  # fmt: skip
    day = sent.created_at - timedelta(days=2)
    address = reverse("admin:submissions_flag_change", args=[flag.pk])
    for created_at, first, later, scores in (
        (day, "Similar run", "Flagged run", "0.250 0.500 (+0.250)"),
        (sent.created_at + timedelta(days=2), "Flagged run", "Similar run", "0.500 0.250 (−0.250)"),
    ):
        Submission.objects.filter(pk="earlier").update(created_at=created_at)
        page = " ".join(re.sub(r"<[^>]*>", " ", desk.get(address).content.decode()).split())
        assert f"{first} submitted first {later} 2 days later System" in page
        assert f"{measure} {scores}" in page


def test_the_list_of_flags_reads_similar_runs_at_once(
    desk: Client, secret: Dataset, sent: Submission, django_assert_num_queries: Any
) -> None:
    make_flag(sent, secret)
    address = reverse("admin:submissions_flag_changelist")
    desk.get(address)
    with CaptureQueriesContext(connection) as one:
        desk.get(address)
    for _ in range(3):
        make_flag(sent, secret)
    with django_assert_num_queries(len(one)):
        assert desk.get(address).content.decode().count("Similar run: ") == 4


def test_without_the_right_nothing_is_settled(secret: Dataset, sent: Submission) -> None:
    viewer = make_user("Vera", is_staff=True)
    viewer.user_permissions.add(Permission.objects.get(codename="view_flag"))
    client = Client()
    client.force_login(viewer)
    make_flag(sent, secret)
    page = client.get(reverse("admin:submissions_flag_changelist")).content.decode()
    assert "11 of 12 queries" in page
    assert 'name="action" value="clear"' not in page
    Flag.objects.all().delete()
    client = Client()
    client.force_login(make_user("Dan", is_staff=True))
    assert act(client, "flag", "confirm", make_flag(sent, secret), confirmed="yes", why="x").status_code == 403
    assert act(client, "quotause", "refund", QuotaUse.objects.get(), confirmed="yes", why="x").status_code == 403
    assert Flag.objects.get().state == "open"


def test_commands(
    capsys: pytest.CaptureFixture[str], carol: User, alice: User, secret: Dataset, sent: Submission
) -> None:
    who, team = ["--by", carol.email, "--why", WHY], team_of(alice)
    call_command("quota", "show", alice.email)
    assert "1 of 2 today\t1 of 10 this month" in capsys.readouterr().out
    call_command("quota", "refund", sent.pk, *who)
    assert used(alice, secret) == 0
    with pytest.raises(CommandError, match="no quota use left"):
        call_command("quota", "refund", sent.pk, *who)
    call_command("quota", "except", team.slug, "--daily", "none", "--monthly", "40", "--until", "2999-01-01", *who)
    assert limits(alice, secret) == (None, 40)
    assert "no limit per day, 40 per month until 2999-01-01" in capsys.readouterr().out
    call_command("quota", "end", team.slug, *who)
    assert limits(alice, secret) == (2, 10)
    with pytest.raises(CommandError, match="no quota of its own"):
        call_command("quota", "end", team.slug, *who)
    flag = make_flag(sent, secret)
    call_command("flags", "list")
    assert f"{flag.pk}\t" in capsys.readouterr().out
    call_command("flags", "confirm", str(flag.pk), *who)
    call_command("flags", "list")
    assert f"{flag.pk}\t" not in capsys.readouterr().out.split("Confirmed", 1)[1].partition("\n")[2]
