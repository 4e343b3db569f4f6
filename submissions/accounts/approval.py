"""Approvals by curators: of accounts, of teams, and of registrations under agreements of datasets and rounds.

Functions for curators are called within `audit.acting`. See docs/decisions/0018-quotas-and-young-teams.md and
docs/decisions/0028-identity-and-access.md. This is the only writer of `Agreement` and `Acceptance`;
`leaderboard.core.permissions` decides who has access.
"""

import hashlib
from collections.abc import Collection, Iterable
from typing import Any

from allauth.account.models import EmailAddress
from allauth.account.signals import email_confirmed
from allauth.account.stages import LoginStage
from django.conf import settings
from django.core.mail import EmailMessage
from django.db import transaction
from django.db.models import Exists, F, OuterRef, Q, QuerySet
from django.dispatch import receiver
from django.http import HttpResponse
from django.shortcuts import render
from django.utils import timezone

from leaderboard.core.audit import acting, record
from leaderboard.core.http.site_url import default_site_address
from leaderboard.core.permissions import PendingAgreement, pending_agreements
from leaderboard.models import (
    VISIBILITIES,
    WITHOUT_AGREEMENT,
    Acceptance,
    Agreement,
    Dataset,
    Membership,
    Team,
    User,
    Visibility,
)
from leaderboard.results.board_rows.revisions import Kind, boards_changed, lock_boards
from leaderboard.results.publishing.publication import reconsider_held
from leaderboard.rounds.lifecycle import announced_rounds, governing_round, listed_datasets
from submissions.accounts.outbox import one_line, queue_account_mail
from submissions.core.errors import ChangeRefused, Refused

_ACCOUNT_TEXT = """Your account at {site} is approved. Sign in at

{address}/account/login/
"""
_TEAM_TEXT = """Your team “{team}” at {site} is approved: it may submit to datasets with hidden judgements.

{address}
"""


class ApprovalStage(LoginStage):
    """Keeps out whose account waits for a curator, after the address was verified."""

    key = "approval"

    def handle(self) -> tuple[HttpResponse | None, bool]:
        """Go on, or say that the account waits; no session comes of it."""
        person: Any = self.login.user
        if not person.approval_awaited:
            return None, True
        return render(self.request, "account/approval_awaited.html", status=403), False


def waiting_accounts() -> QuerySet[User]:
    """Those that cannot sign in before somebody approves them."""
    return User.objects.filter(approval_awaited=True, is_active=True)


def waiting_teams() -> QuerySet[Team]:
    """Those that nobody approved, of people who can sign in; none where no team needs it."""
    if not settings.TEAM_APPROVAL:
        return Team.objects.none()
    of_people = Membership.objects.filter(user__is_active=True, user__approval_awaited=False)
    return Team.objects.filter(pk__in=of_people.values("team"), approved_at=None)


def approve_account(person: User) -> bool:
    """Let the person sign in, and tell them by mail. False where the account did not wait."""
    if not User.objects.filter(pk=person.pk, approval_awaited=True).update(approval_awaited=False):
        return False
    person.approval_awaited = False
    record("account approved", person)
    text = _ACCOUNT_TEXT.format(site=settings.SITE_NAME, address=default_site_address())
    subject = f"Your account at {settings.SITE_NAME} is approved"
    queue_account_mail(EmailMessage(subject, text, to=[person.email]))
    return True


def approve_team(team: Team) -> bool:
    """Let the team submit to hidden judgements, and tell its owners by mail. False where it was approved before.

    From now on it is young for YOUNG_TEAM_DAYS. What it was not told as a team that nobody knew is decided again.
    """
    now = timezone.now()
    if not Team.objects.filter(pk=team.pk, approved_at=None).update(approved_at=now):
        return False
    team.approved_at = now
    record("team approved", team)
    reconsider_held(team)
    text = _TEAM_TEXT.format(
        team=one_line(team.name), site=settings.SITE_NAME, address=default_site_address()
    )
    subject = f"Your team at {settings.SITE_NAME} is approved"
    for owner in User.objects.filter(memberships__team=team, memberships__owner=True, is_active=True):
        queue_account_mail(EmailMessage(subject, text, to=[owner.email]))
    return True


def withdraw_approval(team: Team) -> bool:
    """Take the approval back: the team submits nothing more to hidden judgements. False where it had none.

    What it was not told stays so, and has no day any more from which it would be.
    """
    if not Team.objects.filter(pk=team.pk).exclude(approved_at=None).update(approved_at=None):
        return False
    team.approved_at = None
    record("team's approval withdrawn", team)
    reconsider_held(team)
    return True


# --- agreements


_TEXT = """Your registration for {subject} at {site} is approved. You may download its files and submit to it.

{address}
"""


class AgreementChanged(ChangeRefused):
    """The agreement has another version than the person has read."""

    status = 409


def refuse_unaccepted(person: User, datasets: Iterable[Dataset]) -> None:
    """Raise Refused, with every agreement that keeps the person from submitting to these datasets now."""
    if problems := [due.problem() for due in due_for_submission(person, datasets)]:
        raise Refused(problems[0].code, problems[0].message, problems)


def due_for_submission(person: User, datasets: Iterable[Dataset]) -> list[PendingAgreement]:
    """Return the agreements that the person has yet to accept, or be approved for: the datasets' and their rounds'."""
    keys, now = {dataset.pk for dataset in datasets}, timezone.now()
    in_force = Agreement.objects.filter(Q(dataset__in=keys) | Q(dataset=None), in_force=True)
    subjects = list(in_force.values_list("dataset", flat=True))
    if not subjects:
        return []
    rounds = announced_rounds(keys) if None in subjects else []
    known = [(row, {each.pk for each in listed_datasets(row)}) for row in rounds]
    governing = (governing_round([row for row, its in known if key in its], now) for key in keys)
    return pending_agreements(person, datasets=keys, rounds={row.pk for row in governing if row is not None})


# --- by curators, within `audit.acting`


@transaction.atomic
def apply_agreement(agreement: Agreement) -> None:
    """Bring its dataset and the approvals up to date with an agreement that was saved.

    While it is in force nobody sees the texts of its dataset who has not accepted it; afterwards the dataset's
    settings are what they were.
    """
    if agreement.dataset_id is not None:
        lock_boards([agreement.dataset_id])
        dataset = Dataset.objects.get(pk=agreement.dataset_id)
        _apply_visibilities(agreement, dataset)
        boards_changed([dataset.pk], Kind.DESCRIPTION)
    for acceptance in waiting_acceptances().filter(agreement=agreement):
        if _is_listed(agreement, acceptance.person):
            approve_registration(agreement, acceptance.person)


def _apply_visibilities(agreement: Agreement, dataset: Dataset) -> None:
    """Restrict the dataset's texts to people who accepted, or restore the settings before the agreement."""
    before = {name: getattr(dataset, name) for name in VISIBILITIES}
    if agreement.in_force:
        changed = [name for name, value in before.items() if value in WITHOUT_AGREEMENT]
        values = dict.fromkeys(changed, Visibility.ACCEPTED.value)
        remembered = agreement.settings_before | {name: before[name] for name in changed}
    else:
        earlier, remembered = agreement.settings_before, {}
        values = {name: earlier[name] for name in earlier if getattr(dataset, name) == Visibility.ACCEPTED}
    if not values:
        return
    for name, value in values.items():
        setattr(dataset, name, value)
    Agreement.objects.filter(pk=agreement.pk).update(settings_before=remembered)
    agreement.settings_before = remembered
    dataset.save()
    record("settings", dataset, dataset=dataset, before={name: before[name] for name in values}, after=values)


def same_documents(agreement: Agreement) -> list[Dataset]:
    """Datasets without an agreement that offer the documents of its dataset, such as its other half."""
    dataset = agreement.dataset
    version = dataset.current_version if dataset is not None else None
    if not agreement.in_force or version is None or not version.corpus_sha256:
        return []
    same = Dataset.objects.filter(current_version__corpus_sha256=version.corpus_sha256)
    return list(same.filter(documents_visibility__in=WITHOUT_AGREEMENT).exclude(pk=version.dataset_id))


def waiting_acceptances() -> QuerySet[Acceptance]:
    """Acceptances of the present version of agreements in force that a curator is to approve, oldest first."""
    approved = Agreement.approved.through._default_manager.filter(
        agreement=OuterRef("agreement"), user=OuterRef("person")
    )
    asked = Acceptance.objects.filter(agreement__in_force=True, agreement__needs_approval=True)
    present = asked.filter(version=F("agreement__version"), person__is_active=True)
    return present.exclude(Exists(approved)).select_related("agreement", "person").order_by("pk")


def approve_registration(agreement: Agreement, person: User) -> bool:
    """Let the person in, and tell them by mail. False where they were approved before."""
    if agreement.approved.filter(pk=person.pk).exists():
        return False
    agreement.approved.add(person)
    record("registration approved", person, dataset=agreement.dataset_id, after={"agreement": str(agreement)})
    subject = one_line(str(agreement.subject))
    address = default_site_address() + agreement.get_absolute_url()
    text = _TEXT.format(subject=subject, site=settings.SITE_NAME, address=address)
    queue_account_mail(EmailMessage(f"Your registration for {subject} is approved", text, to=[person.email]))
    return True


def withdraw_registration(agreement: Agreement, person: User) -> bool:
    """Take the approval back: downloads and submissions are refused again. False where there was none."""
    if not agreement.approved.filter(pk=person.pk).exists():
        return False
    agreement.approved.remove(person)
    after = {"agreement": str(agreement)}
    record("registration withdrawn", person, dataset=agreement.dataset_id, after=after)
    return True


# --- by people themselves


@transaction.atomic
def accept_agreement(person: User, agreement: Agreement, version: int) -> None:
    """Record that the person accepts this version of the text. Twice is once.

    Whoever is on the agreement's list is approved at once, or once the address on it is verified. Raises
    AgreementChanged for another version than the present one: the text has changed since it was shown.
    """
    row = Agreement.objects.select_for_update(no_key=True, of=("self",)).get(pk=agreement.pk)
    if not row.in_force or row.version != version:
        raise AgreementChanged(
            "The agreement was changed while you were reading it. Read the new text below."
        )
    digest = hashlib.sha256(row.text.encode()).hexdigest()
    _, new = Acceptance.objects.get_or_create(
        agreement=row, person=person, version=version, defaults={"text_sha256": digest}
    )
    with acting(person):
        if new:
            after = {"version": version, "text_sha256": digest}
            record("agreement accepted", row, dataset=row.dataset_id, after=after)
        if row.needs_approval and _is_listed(row, person):
            approve_registration(row, person)


@receiver(email_confirmed)
def approve_the_listed(email_address: EmailAddress, **said: object) -> None:
    """Approve whoever accepted an agreement before an address on its list was verified."""
    with transaction.atomic(), acting(email_address.user):
        for acceptance in waiting_acceptances().filter(person=email_address.user):
            if _is_listed(acceptance.agreement, acceptance.person):
                approve_registration(acceptance.agreement, acceptance.person)


def _is_listed(agreement: Agreement, person: User) -> bool:
    """Return whether an address of the person is on the list. Only a verified one is known to be theirs."""
    addresses = EmailAddress.objects.filter(user=person, verified=True).values_list("email", flat=True)
    return not {address.lower() for address in addresses}.isdisjoint(agreement.listed)


def forget_addresses(addresses: Collection[str]) -> None:
    """Take the addresses of a closed account off every list; its acceptances keep the account's number."""
    gone = {address.lower() for address in addresses}
    for agreement in Agreement.objects.select_for_update(no_key=True, of=("self",)).order_by("pk"):
        if not gone.isdisjoint(agreement.listed):
            left = [each for each in agreement.listed if each not in gone]
            Agreement.objects.filter(pk=agreement.pk).update(listed=left)
