"""Who curates: a group with the rights to describe, judge, moderate and rescore, but not to read hidden judgements."""

from __future__ import annotations

from django.contrib.auth.models import Group, Permission
from django.db import transaction
from django.db.models import Q

from leaderboard.core.audit import record
from leaderboard.models import User

GROUP = "Curators"
READ_QRELS = "read_qrels"
#: What of the two applications is no curator's business: accounts, who is in which team, and tokens.
_OTHERS = ("user", "membership", "invitation", "apitoken")
#: What of that they look at.
_SEEN = ("view_user", "view_membership")


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
