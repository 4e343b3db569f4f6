"""Permissions on datasets, and the group of curators. Views, API and templates use only these functions.

`is_staff` grants access to the admin index only; every permission is granted separately, through the group of curators
or individually. Permissions on submissions are in `submissions.accounts.permissions`; pages of the admin check model
permissions, as in Django.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from allauth.mfa.models import Authenticator
from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.db import transaction
from django.db.models import BooleanField, Exists, OuterRef, Q, Value

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.audit import record
from leaderboard.core.http.site_url import default_site_address
from leaderboard.models import VISIBILITIES, WITHOUT_AGREEMENT, Acceptance, Agreement, Dataset, User, Visibility

#: Codename of the permission to read hidden judgments and stored original texts.
READ_QRELS = "read_qrels"
READS_JUDGEMENTS = f"leaderboard.{READ_QRELS}"

#: Name of the curators' group. Curators may describe, judge, moderate and rescore, but not read judgments.
GROUP = "Curators"
#: Models outside the curators' responsibility: accounts, memberships, tokens, and switches.
_UNCURATED_MODELS = ("user", "membership", "invitation", "apitoken", "switch")
#: Permissions that curators still have on these models.
_VIEWABLE = ("view_user", "view_membership")

Person = User | AnonymousUser

AGREEMENT_REQUIRED = ProblemCode("agreement_required", "The dataset or round requires registration, and you have not "
    "accepted the current version of its agreement or are not approved yet.", "Open the address in the message and "
    "accept the agreement.", is_free=True)  # fmt: skip


def has_right(person: Person, permission: str) -> bool:
    """Return whether the user is staff and has a permission, such as `leaderboard.change_system`."""
    return isinstance(person, User) and person.curates and person.has_perm(permission)


def is_curator(person: Person) -> bool:
    """Return whether the user is staff with any permission on datasets, systems or results."""
    return isinstance(person, User) and person.curates and person.has_module_perms("leaderboard")


def has_second_factor(person: User, *, except_for: Authenticator | None = None) -> bool:
    """Return whether the user has an authenticator app or a passkey; recovery codes alone do not count."""
    factors = Authenticator.objects.filter(user=person).exclude(type=Authenticator.Type.RECOVERY_CODES)
    return any(factor != except_for for factor in factors)


def may_operate(person: Person) -> bool:
    """Return whether the user may see the site's operational status, as all staff may."""
    return isinstance(person, User) and person.curates


def may_see(person: Person, dataset: Dataset, visibility: str) -> bool:
    """Return whether a visibility setting of the dataset includes the user."""
    if visibility == Visibility.PUBLIC:
        return True
    if visibility == Visibility.PARTICIPANTS:
        return person.is_authenticated
    if visibility == Visibility.ACCEPTED and has_agreement(dataset):
        return not pending_agreements(person, datasets=[dataset.pk])
    return is_curator(person)


class PendingAgreement(NamedTuple):
    """An agreement that blocks a user; with `waits`, the user accepted it and awaits approval."""

    agreement: Agreement
    waits: bool

    def problem(self) -> Problem:
        """Return the problem with the address at which the user can resolve it."""
        subject, address = self.agreement.subject, default_site_address() + self.agreement.get_absolute_url()
        if self.waits:
            message = f"Your registration for {subject} has not been approved yet; see {address}"
            return AGREEMENT_REQUIRED.problem(message, "A curator will review it, and you will get an email.")
        message = f"{subject} requires you to accept its agreement first, at {address}"
        return AGREEMENT_REQUIRED.problem(message, "Read and accept the agreement there, then try again.")


def has_agreement(dataset: Dataset) -> bool:
    """Return whether the dataset requires registration.

    Datasets with public queries need no database query, because an agreement excludes that setting.
    """
    if dataset.queries_visibility in WITHOUT_AGREEMENT:
        return False
    return Agreement.objects.filter(dataset=dataset.pk, in_force=True).exists()


def conflicting_visibility_settings(dataset: Dataset, new_settings: Mapping[str, object]) -> dict[str, str]:
    """Return an error for each of the new visibility settings that would reveal data that the agreement protects.

    There are none if the dataset has no agreement.
    """
    conflicts = [name for name in VISIBILITIES if new_settings.get(name) in WITHOUT_AGREEMENT]
    if not conflicts or not has_agreement(dataset):
        return {}
    return dict.fromkeys(
        conflicts, f"{dataset} has an agreement in force. Choose “{Visibility.ACCEPTED.label}” or curators."
    )


def pending_agreements(
    person: Person, *, datasets: Iterable[int] = (), rounds: Iterable[int] = ()
) -> list[PendingAgreement]:
    """Return the agreements that block a user from downloading from and submitting to datasets and rounds.

    An agreement in force blocks a user who has not accepted its current version or is not approved for it. Curators are
    never blocked. Takes one query.

    Args:
        person: The user or visitor.
        datasets: Primary keys of datasets.
        rounds: Primary keys of rounds.
    """
    if is_curator(person):
        return []
    key = person.pk if isinstance(person, User) else None
    acceptances = Acceptance.objects.filter(agreement=OuterRef("pk"), version=OuterRef("version"), person=key)
    approved = Agreement.approved.through._default_manager.filter(agreement=OuterRef("pk"), user=key)
    agreements = Agreement.objects.filter(Q(dataset__in=list(datasets)) | Q(round__in=list(rounds)), in_force=True)
    if key is None:
        agreements = agreements.annotate(accepted=Value(False, BooleanField()))
    else:
        is_satisfied = Q(accepted=True) & (Q(needs_approval=False) | Q(Exists(approved)))
        agreements = agreements.annotate(accepted=Exists(acceptances)).exclude(is_satisfied)
    return [PendingAgreement(row, row.accepted) for row in agreements.select_related("dataset", "round").order_by("pk")]


def may_see_dataset(person: Person, dataset: Dataset) -> bool:
    """Return whether the user may see the dataset's page; only curators see datasets in preparation."""
    return dataset.state != Dataset.State.PREPARING or is_curator(person)


def may_judge(person: Person) -> bool:
    """Return whether the user may add judgments, and therefore see pools and imports in preparation."""
    return has_right(person, "leaderboard.judge_dataset")


def may_read_judgements(person: Person) -> bool:
    """Return whether the user may read hidden judgments and queries. Callers must record each access."""
    return person.has_perm(READS_JUDGEMENTS)


def curators() -> Group:
    """Update the curators' group to the permissions of this version, creating it if necessary, and return it."""
    permissions = Permission.objects.filter(content_type__app_label__in=["leaderboard", "submissions"])
    # Curators have all permissions on curated models except reading hidden judgments, and view accounts and
    # teams only.
    curated = permissions.exclude(codename=READ_QRELS).exclude(content_type__model__in=_UNCURATED_MODELS)
    rights = permissions.filter(codename__in=_VIEWABLE) | curated.exclude(codename__startswith="delete_auditrecord")
    group, _ = Group.objects.get_or_create(name=GROUP)
    group.permissions.set(rights)
    return group


@transaction.atomic
def make_curator(person: User, *, read_qrels: bool = False) -> None:
    """Make a user a curator, and record it; with `read_qrels`, also allow reading hidden judgments."""
    person.is_staff = True
    person.save(update_fields=["is_staff"])
    person.groups.add(curators())
    if read_qrels:
        permission = Permission.objects.get(content_type__app_label="leaderboard", codename=READ_QRELS)
        person.user_permissions.add(permission)
    record("made curator", person, after={"group": GROUP, "reads hidden judgements": read_qrels})
