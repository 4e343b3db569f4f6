"""A site with one of everything that an address can name, and the people who come to its doors."""

from __future__ import annotations

import gzip
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from allauth.account.models import EmailAddress
from allauth.mfa.models import Authenticator
from allauth.usersessions.models import UserSession
from django.conf import settings
from django.contrib.auth.models import AnonymousUser, Group
from django.contrib.contenttypes.models import ContentType
from django.test import Client
from django.utils import timezone

from leaderboard.core import audit
from leaderboard.core.permissions import make_curator
from leaderboard.datasets.files import offer_file, store_file
from leaderboard.models import (
    Acceptance,
    Agreement,
    Benchmark,
    BenchmarkMember,
    Challenge,
    Dataset,
    DatasetFile,
    Entry,
    HardwareClass,
    JudgementImport,
    Membership,
    Pool,
    Price,
    Qrels,
    Rescore,
    Round,
    Source,
    System,
    Team,
    User,
    Visibility,
)
from leaderboard.rounds.topics import summarise_topics
from submissions.accounts import teams as membership
from submissions.accounts.access import make_token
from submissions.models import (
    ApiToken,
    Flag,
    Notice,
    NoticeKind,
    QuotaException,
    QuotaUse,
    Scope,
    Submission,
    Switch,
    Upload,
    Webhook,
    Worker,
)
from submissions.notifications.webhooks import send_test
from tests.doors.expected import PEOPLE
from tests.factories import make_dataset, make_topic_source, make_user, team_of
from tests.leaderboard.entries import cost
from tests.submissions.clients import Api
from tests.submissions.collections import JUDGED, make_collection, run_text
from tests.submissions.workers import work

#: What stands on the site before anybody comes, by the name that addresses have for it.
Places = dict[tuple[str, str], str]


@dataclass(frozen=True)
class Site:
    """Who comes, in the order of the table, and what an address of each kind is filled with."""

    people: dict[str, Client]
    persons: dict[str, User | AnonymousUser]
    places: Places
    private: Submission
    public: Submission

    def variant(self, name: str) -> Places:
        """What an address is filled with for one of the table's variants."""
        return self.places | VARIANTS[name](self)


#: Other things than the owner's own that a row may be about.
VARIANTS: dict[str, Callable[[Site], Places]] = {
    "sealed": lambda site: {("datasets", "slug"): "sealed"},
    "unseen": lambda site: {("datasets", "slug"): "unseen"},
    "public": lambda site: {("submissions", "identifier"): str(site.public.pk)},
}


def build(folder: Path) -> Site:
    """Everything, in a database that has nothing yet."""
    owner = make_user("Olga")
    demo, sealed = make_collection(folder, "demo"), make_collection(folder, "sealed", hidden=True)
    api = Api(owner)
    public = _submit(api, system="Shown", configuration="first", skip=1)
    private = _submit(api, system="Kept", public="false", configuration="second", skip=2)
    _offer_queries(demo, folder)
    _offer_queries(sealed, folder)
    Dataset.objects.filter(pk=sealed.pk).update(queries_visibility=Visibility.CURATORS)
    make_dataset(slug="unseen", state=Dataset.State.PREPARING)
    team = team_of(owner)
    names = ("other", "teammate", "curator", "staff", "root", "restrained")
    others = {name: make_user(name.title()) for name in names}
    Membership.objects.create(team=team, user=others["teammate"])
    make_curator(others["curator"])
    make_curator(others["restrained"], read_qrels=True)
    User.objects.filter(pk__in=[others["staff"].pk, others["root"].pk]).update(is_staff=True)
    User.objects.filter(pk=others["root"].pk).update(is_superuser=True)
    places: Places = {
        ("datasets", "slug"): "demo",
        ("datasets", "name"): "queries.jsonl.gz",
        ("datasets", "query_id"): "q1",
        ("quotas", "slug"): "demo",
        ("systems", "slug"): "shown",
        ("teams", "slug"): team.slug,
        ("submissions", "identifier"): str(private.pk),
        ("submissions", "dataset"): "demo",
        ("rounds", "dataset"): "demo",
        ("benchmarks", "slug"): "few",
        ("rounds", "slug"): "autumn",
        ("rolling", "slug"): "rolling",
        ("figures", "slug"): "wins",
        ("docs", "name"): "engines",
        ("docs", "section"): "datasets",
        ("view_on_site", "content_type_id"): str(ContentType.objects.get_for_model(Group).pk),  # has no page
    }
    places |= _of_curation(demo, sealed, others["other"], public)
    places |= _of_team(team, owner, others["other"])
    persons: dict[str, User | AnonymousUser] = {"anonymous": AnonymousUser(), "owner": owner, **others}
    persons["expired"] = persons["token"] = persons["anonymous"]
    return Site(_clients(persons, owner), persons, places, private, public)


def _offer_queries(dataset: Dataset, folder: Path) -> None:
    path = folder / f"{dataset.slug}.offered"
    path.write_bytes(gzip.compress(b'{"_id": "q1", "text": "a question"}\n'))
    assert dataset.current_version is not None
    offer_file(dataset.current_version, DatasetFile.Kind.QUERIES, store_file(path), "queries.jsonl.gz")


def _submit(api: Api, *, skip: int, **fields: Any) -> Submission:
    answer = api.submit(run_text(skip=skip), **fields)
    assert answer.status == 201, answer.body
    work()
    return Submission.objects.get(pk=answer.body["id"])


def _clients(persons: dict[str, User | AnonymousUser], owner: User) -> dict[str, Client]:
    clients = {}
    for name in (*PEOPLE, "restrained", "token"):
        clients[name] = Client(raise_request_exception=False)
        person = persons[name]
        if isinstance(person, User):
            clients[name].force_login(User.objects.get(pk=person.pk))
            if name in ("curator", "staff", "root"):
                _show_second_factor(clients[name], person)
    for name in ("expired", "token"):
        text = make_token(owner, name, scopes=[Scope.READ])
        clients[name].defaults["HTTP_AUTHORIZATION"] = f"Bearer {text}"
    ApiToken.objects.filter(user=owner, name="expired").update(expiry=timezone.now() - timedelta(minutes=1))
    return clients


def _show_second_factor(client: Client, person: User) -> None:
    """As if they had set one up and signed in with it."""
    factor = Authenticator.objects.create(user=person, type=Authenticator.Type.TOTP, data={})
    session = client.session
    session["account_authentication_methods_user"] = str(person.pk)
    session["account_authentication_methods"] = [{"method": "mfa", "at": time.time(), "id": factor.pk}]
    session.save()
    client.cookies[settings.SESSION_COOKIE_NAME] = session.session_key or ""


def _of_curation(demo: Dataset, sealed: Dataset, other: User, public: Submission) -> Places:
    """Rows that curators look after, one of each kind."""
    now, version, qrels = timezone.now(), demo.current_version, demo.current_qrels
    assert version is not None
    assert qrels is not None
    entry = Entry.objects.get(submission_reference=public.pk)
    benchmark = Benchmark.objects.create(slug="few", name="A few")
    BenchmarkMember.objects.create(benchmark=benchmark, dataset=demo)
    cost(entry, 4.0)
    Price.objects.create(hardware=HardwareClass.objects.get(), per_hour="1.5", valid_from=now.date())
    held = Round.objects.create(
        slug="autumn", name="Autumn", dataset=demo, opens_at=now - timedelta(days=4),
        closes_at=now - timedelta(days=2), reveals_at=now - timedelta(days=1), revealed_at=now,
    )  # fmt: skip
    Entry.objects.filter(pk=entry.pk).update(round=held)
    summarise_topics(held, demo, qrels, JUDGED)
    for subject in ({"round": held}, {"dataset": make_dataset(slug="asking")}):
        agreement = Agreement.objects.create(text="For research.", **subject)
    Acceptance.objects.create(agreement=agreement, person=other, version=1)
    make_topic_source(dataset=demo)
    Source.objects.create(key="paper", title="A paper", authors="Somebody", year=2020)
    pool = Pool.objects.create(dataset=demo, version=version, qrels=qrels)
    JudgementImport.objects.create(
        dataset=demo, version=version, against=qrels, pool=pool, file_name="a", sha256="0" * 64
    )
    other_qrels = Qrels.objects.create(version=version, sha256="0" * 64, number=2)
    rescore = Rescore.objects.create(dataset=demo, from_qrels=qrels, to_qrels=other_qrels)
    challenge = Challenge.objects.create(
        system=System.objects.get(slug="shown"),
        claim=Challenge.Claim.values[0],
        text="Doubtful",
        raised_by=other,
    )
    details = {"submission": "abc", "compared": 12, "same_documents": 11, "same_order": 11, "chain": ["abc"]}
    Flag.objects.create(
        kind=Flag.Kind.NEARLY_THE_SAME, dataset=sealed, team=public.team, submission=public, details=details
    )
    with audit.acting(other, "for a test"):
        audit.record("tested", "nothing")
    return {
        ("dataset-agreement", "slug"): "asking",
        ("datasets", "number"): str(rescore.pk),
        ("systems", "key"): str(challenge.pk),
    }


def _of_team(team: Team, owner: User, other: User) -> Places:
    """What belongs to the owner's team and person."""
    asking = Agreement.objects.get(dataset__slug="asking")
    Acceptance.objects.create(agreement=asking, person=owner, version=1)
    now = timezone.now()
    invitation, secret = membership.invite(team, other.email, owner=False, actor=owner)
    webhook = Webhook.objects.create(team=team, url="https://example.org/", secret="s" * 20, created_by=owner)
    send_test(webhook)
    Notice.objects.create(person=owner, kind=NoticeKind.values[0], subject="Done", text="It is done.", key="1")
    dataset = Dataset.objects.get(slug="demo")
    QuotaUse.objects.create(dataset=dataset, team=team, person=owner, at=now)
    QuotaException.objects.create(team=team, dataset=dataset, daily=5, reason="a workshop")
    Switch.objects.get_or_create(name=Switch.Name.HUB_DOWNLOADS)
    EmailAddress.objects.get_or_create(user=owner, email=owner.email, primary=True, verified=True)
    Worker.objects.create(name="w1", queues=["score"], started_at=now, seen_at=now)
    upload = Upload.objects.create(owner=owner, length=10, touched_at=now)
    away = make_user("Away")
    Authenticator.objects.create(user=away, type=Authenticator.Type.TOTP, data={})
    passkey = Authenticator.objects.create(user=away, type=Authenticator.Type.WEBAUTHN, data={"name": "Key"})
    UserSession.objects.create(
        user=away, session_key="away", ip="127.0.0.1", user_agent="a browser", data={}, last_seen_at=now
    )
    member = Membership.objects.exclude(user=owner).get(team=team)
    return {
        ("teams", "identifier"): str(webhook.pk),
        ("invitations", "secret"): secret,
        ("uploads", "identifier"): str(upload.pk),
        ("team-invitation", "key"): str(invitation.pk),
        ("team-member", "key"): str(member.pk),
        ("mfa_edit_webauthn", "pk"): str(passkey.pk),
        ("mfa_remove_webauthn", "pk"): str(passkey.pk),
    }
