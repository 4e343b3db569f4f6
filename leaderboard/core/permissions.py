"""Who may see what of datasets, and what makes somebody a curator. Views, API and templates ask here and nowhere else.

To be staff opens the door of the curators' pages and nothing behind it: every right is one that was given, by the
group of curators or one by one. What is about submissions is asked in `submissions.accounts.permissions`;
the admin's pages ask for their model's rights, as Django does.
"""

from __future__ import annotations

from django.contrib.auth.models import AnonymousUser, Group, Permission
from django.db import transaction
from django.db.models import Q

from leaderboard.core.audit import record
from leaderboard.models import Dataset, User
from leaderboard.models.datasets import Visibility

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


def has_right(person: Person, right: str) -> bool:
    """Whether the person is staff and has the right, such as `leaderboard.change_system`."""
    return isinstance(person, User) and person.curates and person.has_perm(right)


def is_curator(person: Person) -> bool:
    """Whether the person curates anything here: is staff with any right over datasets, systems or results."""
    return isinstance(person, User) and person.curates and person.has_module_perms("leaderboard")


def may_operate(person: Person) -> bool:
    """Whether the person may see how the site itself does: any staff."""
    return isinstance(person, User) and person.curates


def sees(person: Person, visibility: str) -> bool:
    """Whether the person is among those that a dataset's setting names."""
    if visibility == Visibility.PUBLIC:
        return True
    if visibility == Visibility.PARTICIPANTS:
        return person.is_authenticated
    return is_curator(person)


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
    group, _ = Group.objects.get_or_create(name=GROUP)
    group.permissions.set(rights())
    return group


def rights() -> list[Permission]:
    """All rights over what is curated but the one to read hidden judgements; accounts and teams are looked at."""
    ours = Permission.objects.filter(content_type__app_label__in=["leaderboard", "submissions"])
    curated = ours.exclude(codename=READ_QRELS).exclude(content_type__model__in=_OTHERS)
    return list(
        ours.filter(codename__in=_SEEN) | curated.filter(~Q(codename__startswith="delete_auditrecord"))
    )


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
