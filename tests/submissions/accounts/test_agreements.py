"""Registration: downloads and submissions wait for an agreement, whichever way somebody comes."""

from __future__ import annotations

import io
import json
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from allauth.account.models import EmailAddress
from allauth.account.signals import email_confirmed
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from evaluation.core.problems import InvalidContent
from leaderboard.core.audit import acting
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Acceptance, Agreement, AuditRecord, Dataset, Round
from leaderboard.results.board_rows.revisions import Kind, boards_changed
from submissions.accounts.approval import accept_agreement, apply_agreement
from submissions.accounts.personal_data import close_account, personal_data
from submissions.models import AccountMail, Submission
from tests.curating import save
from tests.factories import make_a_curator, make_dataset, make_user, make_version, team_of
from tests.leaderboard.tiny_collection import write_folder
from tests.submissions.clients import Api
from tests.submissions.tus import Tus

pytestmark = pytest.mark.django_db

PAGE = "/datasets/tiny/agreement/"
CORPUS = "/datasets/tiny/files/corpus.jsonl.gz"
RUN = "".join(f"q{query} Q0 d{rank} {rank} {9 - rank} tag\n" for query in (1, 2) for rank in (1, 2, 3))


@pytest.fixture
def tiny(tmp_path: Path) -> Dataset:
    """A published dataset with open judgements, whose agreement is in force."""
    dataset = import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny", hidden=False)).dataset
    Dataset.objects.filter(pk=dataset.pk).update(state=Dataset.State.PUBLISHED)
    boards_changed([dataset.pk], Kind.DESCRIPTION)
    put_in_force(dataset=dataset)
    dataset.refresh_from_db()
    return dataset


def put_in_force(**values: Any) -> Agreement:
    agreement = Agreement.objects.create(text="For **research** alone.", **values)
    with acting(None):
        apply_agreement(agreement)
    return agreement


def accept(client: Client, version: int = 1, page: str = PAGE) -> int:
    return client.post(page, {"accept": "yes", "version": version}).status_code


def submit(api: Api, **fields: Any) -> Any:
    return api.submit(RUN, dataset="tiny", **fields)


def test_nothing_of_a_dataset_leaves_before_its_agreement_is_accepted(tiny: Dataset, client: Client) -> None:
    person, other = make_user(), make_user("Bob")
    for who in (None, person):
        if who:
            client.force_login(who)
        answer = client.get(CORPUS)
        assert answer.status_code == 403
        assert PAGE in answer.content.decode()
        listed = client.get("/api/v1/datasets/tiny/files/")
        assert (listed.status_code, listed.json()["code"]) == (403, "agreement_required")
        assert listed.json()["detail"].endswith(PAGE)
    refused = submit(Api(person))
    assert (refused.status, refused.body["code"]) == (400, "agreement_required")
    assert PAGE in refused.body["detail"]
    assert not Submission.objects.exists()

    assert accept(client) == 302
    assert client.get(CORPUS).status_code == 200
    assert client.get("/datasets/tiny/files/qrels.test.tsv.gz").status_code == 200
    assert len(Api(person).get("datasets/tiny/files/").body) > 3
    assert client.get(CORPUS, headers={}).status_code == 200
    assert Client().get(CORPUS, headers=Api(person).headers).status_code == 200  # as the client downloads
    assert Client().get(CORPUS, headers=Api(other).headers).status_code == 403
    assert submit(Api(person)).status == 201


def test_whoever_accepts_accepts_for_themselves_and_not_for_their_team(tiny: Dataset, client: Client) -> None:
    person, teammate = make_user(), make_user("Bob")
    team_of(person).memberships.create(user=teammate)
    client.force_login(person)
    accept(client)
    assert submit(Api(person)).status == 201
    system = Submission.objects.get().system.slug
    assert submit(Api(teammate), system=system, configuration="mine").body["code"] == "agreement_required"


@pytest.mark.parametrize(
    "address",
    [
        "/datasets/tiny/queries/",
        "/datasets/tiny/queries/q1/",
        "/datasets/tiny/croissant.json",
        "/datasets/tiny/",
        "/api/v1/datasets/tiny/",
        "/figures/difficulty.json?dataset=tiny",
        "/figures/lengths.json?dataset=tiny",
    ],
)
def test_no_page_figure_or_description_shows_what_the_agreement_keeps_back(
    tiny: Dataset, client: Client, address: str
) -> None:
    for who in (None, make_user()):
        if who:
            client.force_login(who)
        answer = client.get(address)
        text = answer.content.decode()
        for kept_back in ("query number", "words of document", "corpus.jsonl.gz", "qrels.test"):
            assert kept_back not in text, (address, kept_back)
        # The query texts are kept back, so the figure of their lengths does not offer the dataset.
        assert answer.status_code in ((400,) if "lengths" in address else (200, 404))


def test_the_pages_say_that_registration_is_needed_and_where(tiny: Dataset, client: Client) -> None:
    assert PAGE in client.get("/datasets/tiny/").content.decode()
    assert client.get("/api/v1/datasets/tiny/").json()["agreement"].endswith(PAGE)
    page = client.get(PAGE).content.decode()
    assert "<strong>research</strong>" in page
    assert "Sign in to accept" in page
    assert client.post(PAGE, {"accept": "yes", "version": 1}).headers["Location"].startswith("/account/login/")
    client.force_login(make_user())
    assert client.post(PAGE, {"version": 1}).status_code == 409
    assert not Acceptance.objects.exists()


def test_the_submit_pages_say_it_of_the_dataset_that_is_meant(tiny: Dataset, client: Client) -> None:
    client.force_login(make_user())
    for path in ("/submit/", "/submit/model/"):
        page = client.get(path).content.decode()
        assert PAGE in page, "in the dataset's own row"
        assert "notice is-warning" not in page
        assert "notice is-warning" in client.get(f"{path}?dataset=tiny").content.decode()
    for action in ("check", "submit"):
        run = SimpleUploadedFile("tiny.txt", RUN.encode())
        sent = {
            "action": action,
            "several": run,
            "new-name": "One",
            "new-architecture": "dense",
            "public": "yes",
        }
        answer = client.post("/submit/", sent)
        said = answer.content.decode().split('id="verdict"')[1].split("</section>")[0]
        assert f'href="{PAGE}"' in said, action
        run.seek(0)
        assert client.post("/submit/?dataset=tiny", sent).content.decode().count(f'href="{PAGE}"') == 1
    assert not Submission.objects.exists()


def test_a_changed_text_is_a_new_version_and_asks_again(tiny: Dataset, client: Client) -> None:
    person, cora = make_user(), make_a_curator()
    client.force_login(person)
    accept(client)
    sender = Tus(person)
    address = sender.begin(len(RUN), filename="tiny.txt", kind="run")  # before the new version
    sender.patch(address, RUN.encode()[:20], 0)
    curating = Client()
    curating.force_login(cora)
    admin = f"/admin/leaderboard/agreement/{tiny.agreement.pk}/change/"
    twin = make_dataset(slug="twin", name="The twin")
    Dataset.objects.filter(pk=twin.pk).update(
        current_version=make_version(twin, corpus_sha256=tiny.current_version.corpus_sha256)
    )
    saved = save(curating, admin, text="For research alone, and cite it.")
    assert saved.status_code == 302
    assert "The twin: the same documents" in curating.get(saved["Location"]).content.decode()
    assert client.get(CORPUS).status_code == 403
    sender.patch(address, RUN.encode()[20:], 20)
    refused = Api(person).post(
        "submissions/", system="Mine", architecture="dense", dataset="tiny", upload=address.split("/")[-2]
    )
    assert refused.body["code"] == "agreement_required"
    assert accept(client, version=1) == 409  # a form that shows the old text
    assert accept(client, version=2) == 302
    assert client.get(CORPUS).status_code == 200
    assert [row.version for row in Acceptance.objects.order_by("pk")] == [1, 2]
    said = AuditRecord.objects.filter(action="agreement accepted").order_by("pk")
    assert [(each.actor, each.actor_name) for each in said] == [(person, f"account {person.pk}")] * 2
    with pytest.raises(TypeError, match="append-only"):
        Acceptance.objects.all()[0].save()


def test_a_curator_approves_one_by_one_or_by_a_list(tiny: Dataset, client: Client) -> None:
    listed, unverified, waiting = (make_user(name) for name in ("Ada", "Bob", "Eve"))
    EmailAddress.objects.create(user=listed, email=listed.email, verified=True, primary=True)
    EmailAddress.objects.create(user=unverified, email=unverified.email, verified=False, primary=True)
    curating = Client()
    curating.force_login(make_a_curator())
    admin = f"/admin/leaderboard/agreement/{tiny.agreement.pk}/change/"
    wrong = save(curating, admin, needs_approval="on", listed="ada@example.org\nnobody")
    assert "Line 2: “nobody” is not an email address" in wrong.content.decode()
    both = f"{listed.email.upper()}, \n{unverified.email};"
    saved = save(curating, admin, needs_approval="on", listed=both)
    assert saved.status_code == 302
    assert Agreement.objects.get().listed == [listed.email, unverified.email]
    recorded = AuditRecord.objects.filter(action="edited").latest("pk")
    assert listed.email not in json.dumps([recorded.before, recorded.after])

    for person, status in ((listed, 200), (unverified, 403), (waiting, 403)):
        client.force_login(person)
        accept(client)
        assert client.get(CORPUS).status_code == status, person
    assert "is awaiting a curator" in client.get(CORPUS).content.decode()
    assert "registrations wait for approval" in curating.get("/admin/").content.decode()
    later = EmailAddress.objects.get(user=unverified)
    later.set_verified()
    email_confirmed.send(EmailAddress, email_address=later)
    client.force_login(unverified)
    assert client.get(CORPUS).status_code == 200
    client.force_login(waiting)
    act = {"action": "approve", "_selected_action": Acceptance.objects.get(person=waiting).pk}
    page = curating.post("/admin/leaderboard/acceptance/", act)
    assert "Approve registrations" in page.content.decode()
    curating.post("/admin/leaderboard/acceptance/", {**act, "confirmed": "1", "why": "a colleague"})
    assert client.get(CORPUS).status_code == 200
    assert AccountMail.objects.filter(address=waiting.email).exists()
    curating.post("/admin/leaderboard/acceptance/", {**act, "action": "withdraw", "confirmed": "1", "why": "left"})
    assert client.get(CORPUS).status_code == 403


def test_what_was_open_opens_again_when_an_agreement_ends_and_not_before(
    tiny: Dataset, client: Client, tmp_path: Path
) -> None:
    assert (tiny.queries_visibility, tiny.documents_visibility) == ("accepted", "accepted")
    client.force_login(make_a_curator())
    page = f"/admin/leaderboard/dataset/{tiny.pk}/change/"
    refused = save(client, page, documents_visibility="public")
    assert "has an agreement in force" in refused.content.decode()
    with pytest.raises(InvalidContent, match="agreement in force"):
        import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny", queries_visibility="public"))
    save(client, f"/admin/leaderboard/agreement/{tiny.agreement.pk}/change/", in_force=None)
    tiny.refresh_from_db()
    assert (tiny.queries_visibility, tiny.documents_visibility) == ("public", "public")
    assert Client().get(CORPUS).status_code == 200
    assert Client().get(PAGE).status_code == 404


def test_the_agreement_of_a_round_is_asked_of_what_comes_into_it(tiny: Dataset, client: Client) -> None:
    Agreement.objects.update(in_force=False)
    with acting(None):
        apply_agreement(Agreement.objects.get())
    now, day = timezone.now(), timedelta(days=1)
    row = Round.objects.create(
        slug="first",
        name="First",
        dataset=tiny,
        opens_at=now - day,
        closes_at=now + day,
        reveals_at=now + 2 * day,
    )
    put_in_force(round=row)
    person = make_user()
    client.force_login(person)
    assert client.get(CORPUS).status_code == 200
    assert submit(Api(person), run_type="automatic").body["code"] == "agreement_required"
    assert "/rounds/first/agreement/" in client.get("/rounds/first/").content.decode()
    assert accept(client, page="/rounds/first/agreement/") == 302
    assert submit(Api(person), run_type="automatic").status == 201
    Round.objects.update(revealed_at=now)
    other = make_user("Bob")
    assert submit(Api(other)).status == 201  # outside of the round


def test_a_model_is_refused_as_a_run_is(tiny: Dataset, models_run_here: None) -> None:
    refused = Api(make_user()).post(
        "submissions/", kind="model", system="M", architecture="lexical", engine="bm25", dataset="tiny"
    )
    assert refused.body["code"] == "agreement_required"


def test_an_import_does_not_open_what_an_agreement_closed_meanwhile(tiny: Dataset, tmp_path: Path) -> None:
    Agreement.objects.update(in_force=False)
    asked = ImportOptions(slug="tiny", hidden=False, queries_visibility="public", documents_visibility="public")

    def meanwhile(stage: str, share: float) -> None:
        Agreement.objects.update(in_force=True)

    with pytest.raises(InvalidContent, match="agreement in force"):
        import_dataset(write_folder(tmp_path / "again"), asked, meanwhile)
    Dataset.objects.update(queries_visibility="public", documents_visibility="public")
    assert Client().get(CORPUS).status_code == 403, "whatever the settings are"


def test_a_version_of_thousands_of_digits_is_another_version(tiny: Dataset, client: Client) -> None:
    client.force_login(make_user())
    assert client.post(PAGE, {"accept": "yes", "version": "1" * 5000}).status_code == 409


def test_acceptances_are_told_to_their_person_and_outlive_the_account(tiny: Dataset) -> None:
    person = make_user()
    Agreement.objects.update(listed=[person.email, "other@example.org"])
    accept_agreement(person, tiny.agreement, 1)
    with zipfile.ZipFile(io.BytesIO(personal_data(person))) as archive:
        told = json.loads(archive.read("account.json"))["acceptances"]
    assert [(each["agreement__dataset__slug"], each["version"]) for each in told] == [("tiny", 1)]
    close_account(person)
    assert Acceptance.objects.get().person_id == person.pk
    assert Agreement.objects.get().listed == ["other@example.org"]
