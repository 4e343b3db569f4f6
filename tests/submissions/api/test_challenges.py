"""Challenges: what anyone may doubt of a system, what everyone reads of it, and how a curator settles it."""

from __future__ import annotations

import re
from datetime import timedelta
from urllib.parse import urljoin

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.core.audit import acting
from leaderboard.models import AuditRecord, BoardChange, Challenge, Dataset, Entry, System, User, WorkRequest
from leaderboard.systems.challenges import (
    ChallengeRefused,
    TrainingCorrection,
    raise_challenge,
    retract_challenge,
    settle_challenge,
)
from leaderboard.systems.records import ClaimsSettled, SystemFields, update_system
from submissions.models import Notice
from submissions.notifications.events import process_events
from tests.factories import make_user
from tests.submissions.clients import Api, describe_anew
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

WHY = "Its model card names **NFCorpus** and Demo among the training data."


@pytest.fixture
def system(demo: Dataset, baseline: None, api: Api) -> System:
    """A public system that says it is zero-shot."""
    assert api.submit(training_datasets="none").status == 201
    work()
    return System.objects.get(slug="my-system")


@pytest.fixture
def bob(stranger: Api) -> User:
    """Somebody who doubts."""
    assert stranger.user is not None
    return stranger.user


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who decides."""
    return make_user("Curator", is_staff=True, is_superuser=True)


@pytest.fixture
def challenge(system: System, bob: User) -> Challenge:
    """An open challenge of what the system was trained on."""
    return raise_challenge(system, bob, "training", WHY)


def page_of(path: str = "/systems/my-system/") -> str:
    """A page as everyone sees it."""
    return Client().get(path).content.decode()


def test_a_challenge_is_raised_on_a_page_and_read_by_everyone(system: System, bob: User) -> None:
    client = Client()
    assert client.get("/systems/my-system/challenge/").status_code == 302
    client.force_login(bob)
    assert "Challenge a claim" in client.get("/systems/my-system/challenge/").content.decode()
    fields = {"claim": "training", "text": WHY + " <script>alert(1)</script>", "dataset": "demo"}
    answer = client.post("/systems/my-system/challenge/", fields)
    assert answer.status_code == 302
    page = page_of()
    assert "<strong>NFCorpus</strong>" in page
    assert "<script>alert" not in page
    assert "by Bob" in page
    assert bob.email not in page
    assert "on Demo" in page
    record = AuditRecord.objects.get(action="challenged")
    assert record.actor == bob


def test_boards_mark_it_while_it_is_open_and_no_number_changes(
    challenge: Challenge, nobody: Api, curator: User
) -> None:
    before = nobody.get("datasets/demo/board/").body
    mine = next(row for row in before["rows"] if row["slug"] == "my-system")
    assert mine["challenged"]
    assert not any(row["challenged"] for row in before["rows"] if row["slug"] != "my-system")
    assert any(note.startswith("Challenged") for note in before["notes"])
    assert "is-challenged" in page_of("/datasets/demo/")
    with acting(curator, "looked up"):
        settle_challenge(challenge, upheld=False, decision="The model card is of another model.")
    after = nobody.get("datasets/demo/board/").body
    assert not any(row["challenged"] for row in after["rows"])
    assert [row["values"] for row in after["rows"]] == [row["values"] for row in before["rows"]]
    assert "is-challenged" not in page_of("/datasets/demo/")


def test_what_is_upheld_corrects_the_system_in_the_same_step(challenge: Challenge, curator: User) -> None:
    correction = TrainingCorrection(training_declared=True, training_datasets=["demo"], adapted_to=[])
    with acting(curator, "its model card"):
        settle_challenge(challenge, upheld=True, decision="The model card says so.", correction=correction)
    assert Entry.objects.get(system__slug="my-system").training == "in-domain"
    page = " ".join(page_of().split())
    assert "The model card says so." in page
    assert "by a curator" in page
    assert "Curator" not in page
    assert curator.email not in page
    assert "<del>none</del> → <ins>demo</ins>" in page
    record = AuditRecord.objects.get(action="challenge settled")
    assert (record.actor, record.reason) == (curator, "its model card")
    assert (record.before["training_datasets"], record.after["training_datasets"]) == ([], ["demo"])
    assert AuditRecord.objects.filter(action="system", reason="its model card").count() == 0  # no number changed


def uphold(challenge: Challenge, curator: User, *trained_on: str) -> None:
    """The doubt is right: it was trained on these, and saw no other corpus."""
    with acting(curator, "its model card"):
        settle_challenge(
            challenge,
            upheld=True,
            decision="So it is.",
            correction=TrainingCorrection(True, [*trained_on], []),
        )


@pytest.mark.parametrize("undoing", [{"training_none": "on"}, {"training_datasets": "Elsewhere"}])
def test_no_team_undoes_a_decision(
    challenge: Challenge, curator: User, signed_in: Client, api: Api, undoing: dict[str, str]
) -> None:
    uphold(challenge, curator, "demo")
    page = signed_in.get("/systems/my-system/edit/").content.decode()
    assert f'href="/systems/my-system/#challenge-{challenge.pk}"' in page
    assert f'id="challenge-{challenge.pk}"' in page_of()
    refused = describe_anew(signed_in, name="My system", licence="MIT", **undoing)
    assert refused.status_code == 400
    assert "A challenge settled this field" in refused.content.decode()
    assert Entry.objects.get(system__slug="my-system").training == "in-domain"
    # The rest is still the team's to say, with what was settled repeated or left out.
    for sent in ({}, {"training_datasets": "Demo"}):
        assert describe_anew(signed_in, name="My system", licence="MIT", **sent).status_code == 302
    system = System.objects.get(slug="my-system")
    assert (system.licence, system.training_datasets) == ("MIT", ["demo"])
    answer = api.submit(run_text(depth=9), training_datasets="none")
    assert "settled this field as “demo”" in answer.problem("invalid_training_datasets")["message"]
    assert api.submit(run_text(depth=9), training_datasets="demo", configuration="b").status == 201


def test_a_form_opened_before_the_decision_does_not_undo_it(
    challenge: Challenge, curator: User, signed_in: Client
) -> None:
    form = signed_in.get("/systems/my-system/edit/")
    fields = {"name": "My system", "architecture": "dense", "training_datasets": "", "training_none": "on"}
    uphold(challenge, curator, "demo")
    sent = {**fields, "rendered_from": form.context["rendered_from"]}
    assert signed_in.post("/systems/my-system/edit/", sent).status_code == 400
    system = System.objects.get(slug="my-system")
    with pytest.raises(ClaimsSettled):
        update_system(system, SystemFields(name="My system", architecture="dense", training_declared=True))
    assert System.objects.get(slug="my-system").training_datasets == ["demo"]


def test_what_was_upheld_without_a_correction_its_team_corrects(
    challenge: Challenge, curator: User, signed_in: Client
) -> None:
    with acting(curator, "its model card"):
        settle_challenge(challenge, upheld=True, decision="Its team should say what it used.")
    assert describe_anew(signed_in, name="My system", training_datasets="Demo").status_code == 302
    assert Entry.objects.get(system__slug="my-system").training == "in-domain"


def test_a_doubt_asks_for_no_test_anew(challenge: Challenge, bob: User, curator: User) -> None:
    def asked() -> int:
        return WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY, taken_at=None).count()

    WorkRequest.objects.filter(kind=WorkRequest.Kind.CERTAINTY).delete()
    retract_challenge(challenge, bob)
    again = raise_challenge(challenge.system, bob, "training", WHY)
    with acting(curator, "looked up"):
        settle_challenge(again, upheld=False, decision="No.")
    assert asked() == 0
    kinds = BoardChange.objects.filter(dataset__slug="demo").order_by("-revision").values_list("kind", flat=True)
    assert list(kinds[:3]) == ["challenged"] * 3
    uphold(raise_challenge(challenge.system, bob, "training", WHY), curator, "demo")
    assert asked() == 1


def test_a_curator_takes_words_out_and_the_record_has_none_of_them(
    challenge: Challenge, curator: User, bob: User, nobody: Api
) -> None:
    client = Client()
    client.force_login(curator)
    assert "NFCorpus" in page_of()
    path = "/admin/leaderboard/challenge/"
    chosen = {"action": "take_words_out", "_selected_action": challenge.pk}
    assert "public" in client.post(path, chosen).content.decode()
    sent = {**chosen, "confirmed": "yes", "text": "Its model card names Demo."}
    assert client.post(path, sent).status_code == 400
    assert client.post(path, {**sent, "why": "names the team"}).status_code == 302
    page = page_of()
    assert "NFCorpus" not in page
    assert "Its model card names Demo." in page
    assert "A curator removed parts of this text" in page
    assert "NFCorpus" not in str(nobody.get("systems/my-system/challenges/").body)
    record = AuditRecord.objects.get(action="challenge redacted")
    assert (record.actor, record.reason) == (curator, "names the team")
    assert "NFCorpus" not in f"{record.before}{record.after}{record.subject}"
    call_command("redact_challenge", challenge.pk, by=curator.email, why="all of it")
    assert "A curator removed this text." in page_of()
    assert "model card" not in page_of()
    with pytest.raises(CommandError, match="no challenge"):
        call_command("redact_challenge", 0, by=curator.email, why="all of it")


def test_a_settled_challenge_stays_settled(challenge: Challenge, curator: User, bob: User) -> None:
    with acting(curator):
        settle_challenge(challenge, upheld=False, decision="No.")
        with pytest.raises(ChallengeRefused, match="already settled"):
            settle_challenge(challenge, upheld=True, decision="Yes.")
    with pytest.raises(ChallengeRefused):
        retract_challenge(challenge, bob)
    assert Challenge.objects.get().state == "rejected"


def test_who_raised_it_takes_it_back_and_nobody_else(challenge: Challenge, bob: User, alice: User) -> None:
    client = Client()
    client.force_login(alice)
    path = f"/systems/my-system/challenge/{challenge.pk}/"
    assert client.post(path).status_code == 404
    client.force_login(bob)
    assert client.post(path).status_code == 302
    assert Challenge.objects.get().state == "retracted"
    assert "Retracted on" in page_of()
    # It may be raised again.
    raise_challenge(challenge.system, bob, "training", WHY)


@pytest.mark.parametrize(
    ("claim", "text", "message"),
    [
        ("training", WHY, "already challenged this"),
        ("weather", WHY, "Choose the claim that you doubt"),
        ("result", "too short", "20 to 4,000"),
        ("result", "x" * 4001, "20 to 4,000"),
    ],
)
def test_what_is_refused(challenge: Challenge, bob: User, claim: str, text: str, message: str) -> None:
    with pytest.raises(ChallengeRefused, match=message):
        raise_challenge(challenge.system, bob, claim, text)
    assert Challenge.objects.count() == 1


def test_a_challenge_has_a_name(system: System, bob: User) -> None:
    bob.name = ""
    bob.save()
    client = Client()
    client.force_login(bob)
    page = client.get("/systems/my-system/challenge/").content.decode()
    assert "Add a name to your account first" in page
    assert "<textarea" not in page
    answer = client.post("/systems/my-system/challenge/", {"claim": "training", "text": WHY})
    assert answer.status_code == 400
    assert Challenge.objects.count() == 0


def test_nobody_challenges_their_own_team_or_what_is_not_public(
    system: System, alice: User, api: Api, bob: User, signed_in: Client
) -> None:
    with pytest.raises(ChallengeRefused, match="your own team"):
        raise_challenge(system, alice, "training", WHY)
    assert "Edit the system" in signed_in.get("/systems/my-system/challenge/").content.decode()
    api.submit(system="Hidden one", public="no")
    work()
    hidden = System.objects.get(slug="hidden-one")
    with pytest.raises(ChallengeRefused, match="no public result"):
        raise_challenge(hidden, bob, "training", WHY)
    client = Client()
    client.force_login(bob)
    assert client.get("/systems/hidden-one/challenge/").status_code == 404


def test_a_person_has_so_many_open_and_no_more(system: System, bob: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("leaderboard.systems.challenges.MAX_OPEN", 1)
    raise_challenge(system, bob, "training", WHY)
    with pytest.raises(ChallengeRefused, match="Wait until"):
        raise_challenge(system, bob, "result", WHY)


def test_the_api_raises_and_shows_them(system: System, stranger: Api, nobody: Api) -> None:
    assert nobody.post("systems/my-system/challenges/", claim="training", text=WHY).status == 401
    answer = stranger.post("systems/my-system/challenges/", claim="training", text=WHY)
    assert answer.status == 201, answer.body
    again = stranger.post("systems/my-system/challenges/", claim="training", text=WHY)
    assert again.status == 400
    assert "already" in again.problem("challenge_refused")["message"]
    assert stranger.post("systems/my-system/challenges/", claim="training", text="short").status == 400
    shown = nobody.get("systems/my-system/challenges/").body["challenges"]
    assert [(each["state"], each["by"], each["text"]) for each in shown] == [("open", "Bob", WHY)]
    assert nobody.get("systems/my-system/").body["challenges"] == shown
    assert nobody.get("systems/none/challenges/").status == 404


def test_a_command_settles_and_corrects(challenge: Challenge, curator: User) -> None:
    options = {"by": curator.email, "why": "checked", "decision": "It says so."}
    with pytest.raises(CommandError):
        call_command("settle_challenge", 0, uphold=True, **options)
    call_command("settle_challenge", challenge.pk, uphold=True, trained_on="Demo", **options)
    assert Challenge.objects.get().state == "upheld"
    assert System.objects.get(slug="my-system").training_datasets == ["demo"]
    with pytest.raises(CommandError, match="already settled"):
        call_command("settle_challenge", challenge.pk, reject=True, **options)


def test_a_curator_settles_in_the_admin(challenge: Challenge, curator: User) -> None:
    client = Client()
    client.force_login(curator)
    path = "/admin/leaderboard/challenge/"
    chosen = {"action": "uphold", "_selected_action": challenge.pk}
    page = client.post(path, chosen)
    assert "Enter Markdown. The system’s page shows the decision" in page.content.decode()
    fields = {**chosen, "confirmed": "yes", "why": "checked", "decision": "It says so.", "correct": "on"}
    answer = client.post(path, {**fields, "training_datasets": "demo", "adapted_to": ""})
    assert answer.status_code == 302, answer.content.decode()[-2000:]
    assert Challenge.objects.get().settled_by == curator
    assert Entry.objects.get(system__slug="my-system").training == "in-domain"
    looker = make_user("Looker", is_staff=True)
    client.force_login(looker)
    assert client.post(path, chosen).status_code == 403


def test_a_challenge_is_settled_from_its_own_page(challenge: Challenge, curator: User) -> None:
    client = Client()
    client.force_login(curator)
    path = f"/admin/leaderboard/challenge/{challenge.pk}/change/"
    page = client.get(path).content.decode()
    assert 'value="uphold"' in page
    assert 'value="reject"' in page
    form = re.search(r'<form class="card form" method="post" action="([^"]+)">(.*?)</form>', page, re.DOTALL)
    assert form is not None
    assert form[2].count('maxlength="4000"') == form[2].count('maxlength="300"') == 1
    assert page.index("Declared by the system") < form.start()
    address = urljoin(path, form[1])
    asked = client.post(address, {"action": "reject", "_selected_action": challenge.pk}).content.decode()
    assert "shows the challenge as not upheld" in asked
    fields = dict(re.findall(r'<input type="hidden" name="(\w+)" value="(\w+)"', form[2]))
    client.post(address, {**fields, "action": "reject", "decision": "No.", "why": "It is declared."})
    challenge.refresh_from_db()
    assert (challenge.state, challenge.decision) == (Challenge.State.REJECTED, "No.")
    settled = client.get(path).content.decode()
    assert 'value="uphold"' not in settled
    assert 'value="take_words_out"' in settled


def test_the_team_is_told_and_then_who_raised_it(challenge: Challenge, alice: User, bob: User, curator: User) -> None:
    process_events()
    assert set(Notice.objects.values_list("person", flat=True)) == {alice.pk}
    with acting(curator):
        settle_challenge(challenge, upheld=False, decision="No.")
    process_events()
    told = Notice.objects.filter(kind="challenged").values_list("person", flat=True)
    assert sorted(told) == sorted([alice.pk, alice.pk, bob.pk])
    assert not WorkRequest.objects.filter(kind=WorkRequest.Kind.NOTIFY, taken_at=None).exists()


def test_old_boards_keep_the_mark_of_then(challenge: Challenge, curator: User) -> None:
    with acting(curator):
        settle_challenge(challenge, upheld=False, decision="No.")
    last = BoardChange.objects.filter(dataset__slug="demo").latest("pk")
    BoardChange.objects.exclude(pk=last.pk).update(at=last.at - timedelta(hours=1))
    then = f"{last.at - timedelta(minutes=30):%Y-%m-%dT%H:%M:%SZ}"
    assert "is-challenged" in page_of(f"/datasets/demo/at/{then}/")
