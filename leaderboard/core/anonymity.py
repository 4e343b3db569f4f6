"""Systems whose people are kept back while a review lasts: the one place that decides what is shown of them.

Whatever shows a system to people reads its team, authors and links through `public_columns`, `public_system`,
`team_name` or `team_slug`; none of them tells the team itself or a curator more, whose pages are the editing ones. A
system whose `anonymous_until` has a date is anonymous, even past it, until `leaderboard.systems.anonymity` has emptied
the field and changed its boards.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db.models import Case, CharField, F, Q, Value, When

from leaderboard.models import System

Content = TypeVar("Content")

#: What stands where a team's name would.
ANONYMOUS = "anonymous"
#: What is kept back, by the column of a system that has it, and what stands there instead.
KEPT_BACK: Mapping[str, Any] = {
    "team_id": None,
    "team__name": ANONYMOUS,
    "team__slug": None,
    "participant": "",
    "authors": "",
    "paper_url": "",
    "code_url": "",
    "model_url": "",
    "bibtex": "",
    # A predecessor that everyone knows names whose the successor is.
    "variant_of_id": None,
    "variant_of__name": None,
    "variant_of__slug": None,
}


def anonymous_now(prefix: str = "") -> Q:
    """Systems that are anonymous now; `prefix` leads to them: `system__`."""
    return Q(**{f"{prefix}anonymous_until__isnull": False})


def _names_participant(prefix: str) -> Q:
    return ~Q(**{f"{prefix}participant": ""})


def team_name(prefix: str = "") -> Case:
    """Whose the system is, as everyone reads it, as a column: the participant that it names, else its team."""
    return Case(
        When(anonymous_now(prefix), then=Value(ANONYMOUS)),
        When(_names_participant(prefix), then=F(f"{prefix}participant")),
        default=F(f"{prefix}team__name"),
        output_field=CharField(),
    )


def team_slug(prefix: str = "") -> Case:
    """The address of the page of that team, as a column; a participant has none."""
    nobody = anonymous_now(prefix) | _names_participant(prefix)
    return Case(When(nobody, then=Value(None)), default=F(f"{prefix}team__slug"), output_field=CharField())


def public_columns(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The columns of a system as everyone reads them; `anonymous_until` must be one of them."""
    found = dict(row)
    if row[f"{prefix}anonymous_until"] is not None:
        found.update({prefix + name: value for name, value in KEPT_BACK.items() if prefix + name in found})
    if row.get(f"{prefix}variant_of__anonymous_until") is not None:
        found.update({f"{prefix}variant_of__name": None, f"{prefix}variant_of__slug": None})
    found.pop(f"{prefix}variant_of__anonymous_until", None)
    return found


def public_system(system: System) -> System:
    """The system as everyone reads it: itself, or a copy, not to be saved, without what is kept back."""
    if system.anonymous_until is None:
        return system
    found = copy.copy(system)
    found.team = found.variant_of = None
    for name in ("participant", "authors", "paper_url", "code_url", "model_url", "bibtex"):
        setattr(found, name, "")
    return found


def unnamed_seeds(seeds: Iterable[tuple[str, Content]]) -> list[tuple[str, Content]]:
    """Seeds under numbers: their labels may be made of file names."""
    return [(f"seed {number}", content) for number, (_, content) in enumerate(seeds, 1)]


def team_shown(system: System) -> str:
    """Whose the system is, in a word; empty for one that is no team's."""
    if system.anonymous_until is not None:
        return ANONYMOUS
    return system.participant or (system.team.name if system.team else "")
