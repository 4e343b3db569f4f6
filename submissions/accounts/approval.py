"""Approval of accounts, teams, and registrations under agreements of datasets and rounds.

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
_TEAM_TEXT = """Your team “{team}” at {site} is approved and may submit to datasets with hidden judgments.

{address}
"""


class ApprovalStage(LoginStage):
    """Sign-in stage that stops accounts awaiting approval, after their address was verified."""

    key = "approval"

    def handle(self) -> tuple[HttpResponse | None, bool]:
        """Continue the sign-in, or stop it with a page that says that the account awaits approval."""
        person: Any = self.login.user
        if not person.approval_awaited:
            return None, True
        return render(self.request, "account/approval_awaited.html", status=403), False


def waiting_accounts() -> QuerySet[User]:
    return User.objects.filter(approval_awaited=True, is_active=True)


def waiting_teams() -> QuerySet[Team]:
    """Return the unapproved teams of users who can sign in; none if teams need no approval."""
    if not settings.TEAM_APPROVAL:
        return Team.objects.none()
    active_memberships = Membership.objects.filter(user__is_active=True, user__approval_awaited=False)
    return Team.objects.filter(pk__in=active_memberships.values("team"), approved_at=None)


def approve_account(person: User) -> bool:
    """Approve the account and notify the user by email. Return False if it was not waiting."""
    if not User.objects.filter(pk=person.pk, approval_awaited=True).update(approval_awaited=False):
        return False
    person.approval_awaited = False
    record("account approved", person)
    text = _ACCOUNT_TEXT.format(site=settings.SITE_NAME, address=default_site_address())
    queue_account_mail(EmailMessage(f"Your account at {settings.SITE_NAME} is approved", text, to=[person.email]))
    return True


def approve_team(team: Team) -> bool:
    """Approve the team for hidden datasets and email its owners. Return False if it was already approved.

    The team counts as young for the next YOUNG_TEAM_DAYS. Results withheld while it was unapproved are reconsidered.
    """
    now = timezone.now()
    if not Team.objects.filter(pk=team.pk, approved_at=None).update(approved_at=now):
        return False
    team.approved_at = now
    record("team approved", team)
    reconsider_held(team)
    text = _TEAM_TEXT.format(team=one_line(team.name), site=settings.SITE_NAME, address=default_site_address())
    subject = f"Your team at {settings.SITE_NAME} is approved"
    for owner in User.objects.filter(memberships__team=team, memberships__owner=True, is_active=True):
        queue_account_mail(EmailMessage(subject, text, to=[owner.email]))
    return True


def withdraw_approval(team: Team) -> bool:
    """Withdraw the team's approval for hidden datasets. Return False if it had none.

    Results that were withheld remain so, without a release date.
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
    """Refusal because the agreement changed after the user read it."""

    status = 409


def refuse_unaccepted(person: User, datasets: Iterable[Dataset]) -> None:
    """Raise Refused with every agreement that blocks the user from submitting to these datasets."""
    if problems := [due_agreement.problem() for due_agreement in due_for_submission(person, datasets)]:
        raise Refused(problems[0].code, problems[0].message, problems)


def due_for_submission(person: User, datasets: Iterable[Dataset]) -> list[PendingAgreement]:
    """Return the agreements that the user must accept, or be approved for, before submitting to the datasets.

    They belong to the datasets or to the rounds that the datasets are in.
    """
    keys, now = {dataset.pk for dataset in datasets}, timezone.now()
    agreements = Agreement.objects.filter(Q(dataset__in=keys) | Q(dataset=None), in_force=True)
    subjects = list(agreements.values_list("dataset", flat=True))
    if not subjects:
        return []
    rounds = announced_rounds(keys) if None in subjects else []
    round_datasets = [(row, {dataset.pk for dataset in listed_datasets(row)}) for row in rounds]
    governing_rounds = (
        governing_round([row for row, dataset_ids in round_datasets if key in dataset_ids], now) for key in keys
    )
    return pending_agreements(person, datasets=keys, rounds={row.pk for row in governing_rounds if row is not None})


# --- by curators, within `audit.acting`


@transaction.atomic
def apply_agreement(agreement: Agreement) -> None:
    """Update the dataset's visibility settings and the approvals after an agreement was saved.

    While it is in force, only users who accepted it can see the dataset's texts. Afterwards, the dataset's previous
    settings are restored. Waiting users on the agreement's list are approved.
    """
    if agreement.dataset_id is not None:
        lock_boards([agreement.dataset_id])
        dataset = Dataset.objects.get(pk=agreement.dataset_id)
        _apply_visibilities(agreement, dataset)
        boards_changed([dataset.pk], Kind.DESCRIPTION)
    for acceptance in waiting_acceptances().filter(agreement=agreement):
        if _has_listed_address(agreement, acceptance.person):
            approve_registration(agreement, acceptance.person)


def _apply_visibilities(agreement: Agreement, dataset: Dataset) -> None:
    """Restrict the dataset's texts to users who accepted, or restore the settings before the agreement.

    Changes are saved and recorded. Settings that a curator changed meanwhile are not restored.
    """
    before = {name: getattr(dataset, name) for name in VISIBILITIES}
    if agreement.in_force:
        changed_names = [name for name, value in before.items() if value in WITHOUT_AGREEMENT]
        values = dict.fromkeys(changed_names, Visibility.ACCEPTED.value)
        stored_settings = agreement.settings_before | {name: before[name] for name in changed_names}
    else:
        earlier_settings, stored_settings = agreement.settings_before, {}
        values = {
            name: earlier_settings[name] for name in earlier_settings if getattr(dataset, name) == Visibility.ACCEPTED
        }
    if not values:
        return
    for name, value in values.items():
        setattr(dataset, name, value)
    Agreement.objects.filter(pk=agreement.pk).update(settings_before=stored_settings)
    agreement.settings_before = stored_settings
    dataset.save()
    record("settings", dataset, dataset=dataset, before={name: before[name] for name in values}, after=values)


def same_documents(agreement: Agreement) -> list[Dataset]:
    """Return other datasets that offer the same documents without an agreement; none unless this one is in force."""
    dataset = agreement.dataset
    version = dataset.current_version if dataset is not None else None
    if not agreement.in_force or version is None or not version.corpus_sha256:
        return []
    datasets = Dataset.objects.filter(current_version__corpus_sha256=version.corpus_sha256)
    return list(datasets.filter(documents_visibility__in=WITHOUT_AGREEMENT).exclude(pk=version.dataset_id))


def waiting_acceptances() -> QuerySet[Acceptance]:
    """Return the acceptances of current agreements that await a curator's approval, oldest first."""
    approvals = Agreement.approved.through._default_manager.filter(
        agreement=OuterRef("agreement"), user=OuterRef("person")
    )
    acceptances = Acceptance.objects.filter(agreement__in_force=True, agreement__needs_approval=True)
    current_acceptances = acceptances.filter(version=F("agreement__version"), person__is_active=True)
    return current_acceptances.exclude(Exists(approvals)).select_related("agreement", "person").order_by("pk")


def approve_registration(agreement: Agreement, person: User) -> bool:
    """Approve the registration and notify the user by email. Return False if it was already approved."""
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
    """Withdraw the approval, which blocks downloads and submissions. Return False if there was none."""
    if not agreement.approved.filter(pk=person.pk).exists():
        return False
    agreement.approved.remove(person)
    record("registration withdrawn", person, dataset=agreement.dataset_id, after={"agreement": str(agreement)})
    return True


# --- by users themselves


@transaction.atomic
def accept_agreement(person: User, agreement: Agreement, version: int) -> None:
    """Record that the user accepts this version of the agreement, at most once.

    Users on the agreement's list with a verified address are approved at once. Raises AgreementChanged if the version
    is not current, because the text has changed since it was shown.
    """
    row = Agreement.objects.select_for_update(no_key=True, of=("self",)).get(pk=agreement.pk)
    if not row.in_force or row.version != version:
        raise AgreementChanged("The agreement changed while you were reading it. Read the new text below.")
    digest = hashlib.sha256(row.text.encode()).hexdigest()
    _, is_new = Acceptance.objects.get_or_create(
        agreement=row, person=person, version=version, defaults={"text_sha256": digest}
    )
    with acting(person):
        if is_new:
            record("agreement accepted", row, dataset=row.dataset_id, after={"version": version, "text_sha256": digest})
        if row.needs_approval and _has_listed_address(row, person):
            approve_registration(row, person)


@receiver(email_confirmed)
def approve_listed_acceptances(email_address: EmailAddress, **options: object) -> None:
    """Approve registrations that waited for this address to be verified."""
    with transaction.atomic(), acting(email_address.user):
        for acceptance in waiting_acceptances().filter(person=email_address.user):
            if _has_listed_address(acceptance.agreement, acceptance.person):
                approve_registration(acceptance.agreement, acceptance.person)


def _has_listed_address(agreement: Agreement, person: User) -> bool:
    addresses = EmailAddress.objects.filter(user=person, verified=True).values_list("email", flat=True)
    return not {address.lower() for address in addresses}.isdisjoint(agreement.listed)


def forget_addresses(addresses: Collection[str]) -> None:
    """Remove the addresses of a closed account from the lists of all agreements.

    Acceptances keep the account's number.
    """
    removed_addresses = {address.lower() for address in addresses}
    for agreement in Agreement.objects.select_for_update(no_key=True, of=("self",)).order_by("pk"):
        if not removed_addresses.isdisjoint(agreement.listed):
            remaining_addresses = [address for address in agreement.listed if address not in removed_addresses]
            Agreement.objects.filter(pk=agreement.pk).update(listed=remaining_addresses)
