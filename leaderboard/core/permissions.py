"""Who may see what of datasets, and what makes somebody a curator. Views, API and templates ask here and nowhere else.

To be staff opens the door of the curators' pages and nothing behind it: every right is one that was given, by the
group of curators or one by one. What is about submissions is asked in `submissions.accounts.permissions`;
the admin's pages ask for their model's rights, as Django does.
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.db import transaction
from django.db.models import BooleanField, Exists, OuterRef, Q, Value

from evaluation.core.problems import Problem, ProblemCode
from leaderboard.core.audit import record
from leaderboard.core.http.site_url import own_address
from leaderboard.models import (
    VISIBILITIES,
    WITHOUT_AGREEMENT,
    Acceptance,
    Agreement,
    Dataset,
    User,
    Visibility,
)

#: The right to read hidden judgements, and the texts that are kept as they are.
READ_QRELS = "read_qrels"
READS_JUDGEMENTS = f"leaderboard.{READ_QRELS}"

#: The group of those who curate: its rights are to describe, judge, moderate and rescore, but not to read judgements.
GROUP = "Curators"
#: What of the two applications is no curator's business: accounts, who is in which team, tokens, and switches.
_OTHERS = ("user", "membership", "invitation", "apitoken", "switch")
#: What of that they look at.
_SEEN = ("view_user", "view_membership")

Person = User | AnonymousUser

AGREEMENT_REQUIRED = ProblemCode("agreement_required", "The dataset or the round asks for registration, and you have "
    "not accepted the present version of its agreement, or are not approved yet.", "Open the address that the message "
    "names, and accept the agreement there.", is_free=True)  # fmt: skip


def has_right(person: Person, right: str) -> bool:
    """Whether the person is staff and has the right, such as `leaderboard.change_system`."""
    return isinstance(person, User) and person.curates and person.has_perm(right)


def is_curator(person: Person) -> bool:
    """Whether the person curates anything here: is staff with any right over datasets, systems or results."""
    return isinstance(person, User) and person.curates and person.has_module_perms("leaderboard")


def may_operate(person: Person) -> bool:
    """Whether the person may see how the site itself does: any staff."""
    return isinstance(person, User) and person.curates


def sees(person: Person, dataset: Dataset, visibility: str) -> bool:
    """Whether the person is among those that a setting of the dataset names."""
    if visibility == Visibility.PUBLIC:
        return True
    if visibility == Visibility.PARTICIPANTS:
        return person.is_authenticated
    if visibility == Visibility.ACCEPTED and has_agreement(dataset):
        return not due_agreements(person, datasets=[dataset.pk])
    return is_curator(person)


class DueAgreement(NamedTuple):
    """An agreement that keeps a person out; `waits`: they accepted it and are not approved yet."""

    agreement: Agreement
    waits: bool

    def problem(self) -> Problem:
        """What is wrong and where the person can mend it."""
        subject, address = self.agreement.subject, own_address() + self.agreement.get_absolute_url()
        if self.waits:
            message = f"Your registration for {subject} has not been approved yet; see {address}"
            return AGREEMENT_REQUIRED.problem(message, "A curator approves it; you are told by mail.")
        message = f"{subject} asks you to accept its agreement first, at {address}"
        return AGREEMENT_REQUIRED.problem(message, "Read the agreement there and accept it, then try again.")


def has_agreement(dataset: Dataset) -> bool:
    """Whether the dataset asks for registration.

    No query is needed where everyone sees its queries: a dataset with an agreement has no such setting.
    """
    if dataset.queries_visibility in WITHOUT_AGREEMENT:
        return False
    return Agreement.objects.filter(dataset=dataset.pk, in_force=True).exists()


def opened_despite_agreement(dataset: Dataset, wanted: Mapping[str, object]) -> dict[str, str]:
    """What is wrong, by setting, with settings that would show what the agreement of the dataset keeps back."""
    opened = [name for name in VISIBILITIES if wanted.get(name) in WITHOUT_AGREEMENT]
    if not opened or not has_agreement(dataset):
        return {}
    return dict.fromkeys(
        opened, f"{dataset} has an agreement in force. Choose “{Visibility.ACCEPTED.label}” or curators."
    )


def due_agreements(
    person: Person, *, datasets: Iterable[int] = (), rounds: Iterable[int] = ()
) -> list[DueAgreement]:
    """Which agreements of these datasets and rounds, by key, keep the person from downloading and submitting.

    Those in force of which they have not accepted the present version, or that they are not approved for. None keeps
    out a curator. One query.
    """
    if is_curator(person):
        return []
    key = person.pk if isinstance(person, User) else None
    accepted = Acceptance.objects.filter(agreement=OuterRef("pk"), version=OuterRef("version"), person=key)
    approved = Agreement.approved.through._default_manager.filter(agreement=OuterRef("pk"), user=key)
    asked = Agreement.objects.filter(Q(dataset__in=list(datasets)) | Q(round__in=list(rounds)), in_force=True)
    if key is None:
        asked = asked.annotate(accepted=Value(False, BooleanField()))
    else:
        done = Q(accepted=True) & (Q(needs_approval=False) | Q(Exists(approved)))
        asked = asked.annotate(accepted=Exists(accepted)).exclude(done)
    return [
        DueAgreement(row, row.accepted) for row in asked.select_related("dataset", "round").order_by("pk")
    ]


def may_see_dataset(person: Person, dataset: Dataset) -> bool:
    """Whether the dataset has a page for the person: while it is being prepared, for curators alone."""
    return dataset.state != Dataset.State.PREPARING or is_curator(person)


def may_judge(person: Person) -> bool:
    """Whether the person extends judgements, and so is told that new ones are being prepared."""
    return has_right(person, "leaderboard.judge_dataset")


def may_read_judgements(person: Person) -> bool:
    """Whether the person may read hidden judgements, and hidden queries. Whoever lets them records each reading."""
    return person.has_perm(READS_JUDGEMENTS)


def curators() -> Group:
    """The group with its present rights: whatever a later version adds is given here as well."""
    ours = Permission.objects.filter(content_type__app_label__in=["leaderboard", "submissions"])
    # All rights over what is curated but the one to read hidden judgements; accounts and teams are looked at.
    curated = ours.exclude(codename=READ_QRELS).exclude(content_type__model__in=_OTHERS)
    rights = ours.filter(codename__in=_SEEN) | curated.exclude(codename__startswith="delete_auditrecord")
    group, _ = Group.objects.get_or_create(name=GROUP)
    group.permissions.set(rights)
    return group


@transaction.atomic
def make_curator(person: User, *, read_qrels: bool = False) -> None:
    """Let the person curate; with `read_qrels` also read hidden judgements, each reading of which is logged."""
    person.is_staff = True
    person.save(update_fields=["is_staff"])
    person.groups.add(curators())
    if read_qrels:
        right = Permission.objects.get(content_type__app_label="leaderboard", codename=READ_QRELS)
        person.user_permissions.add(right)
    record("made curator", person, after={"group": GROUP, "reads hidden judgements": read_qrels})
