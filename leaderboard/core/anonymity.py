"""Anonymous systems: the single place that decides which details of a system are public during a review.

Every page, feed and API response that shows a system must read its team, authors and links through `public_columns`,
`public_system`, `team_name` or `team_slug`. These hide the details even from the team itself and from curators, who
see them on the editing pages only.

A system with a date in `anonymous_until` stays anonymous, even past that date, until `leaderboard.systems.anonymity`
has cleared the field and updated the boards.
"""

import copy
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

from django.db.models import Case, CharField, F, Q, Value, When

from leaderboard.models import System

Content = TypeVar("Content")

#: Placeholder for the name of an anonymous system's team.
ANONYMOUS = "anonymous"
#: Hidden columns of an anonymous system, with the value that replaces each.
HIDDEN_COLUMNS: Mapping[str, Any] = {
    "team_id": None,
    "team__name": ANONYMOUS,
    "team__slug": None,
    "participant": "",
    "authors": "",
    "paper_url": "",
    "code_url": "",
    "model_url": "",
    "bibtex": "",
    # The name of a public predecessor would reveal the team of its successor.
    "variant_of_id": None,
    "variant_of__name": None,
    "variant_of__slug": None,
}


def anonymous_now(prefix: str = "") -> Q:
    """Return the condition for anonymous systems; `prefix` is the lookup path to the system, such as `system__`."""
    return Q(**{f"{prefix}anonymous_until__isnull": False})


def _names_participant(prefix: str) -> Q:
    return ~Q(**{f"{prefix}participant": ""})


def team_name(prefix: str = "") -> Case:
    """Build an expression for the public name of a system's participant or, without one, its team."""
    return Case(
        When(anonymous_now(prefix), then=Value(ANONYMOUS)),
        When(_names_participant(prefix), then=F(f"{prefix}participant")),
        default=F(f"{prefix}team__name"),
        output_field=CharField(),
    )


def team_slug(prefix: str = "") -> Case:
    """Build an expression for the slug of the public team page; NULL for participants and anonymous systems."""
    is_unlinked = anonymous_now(prefix) | _names_participant(prefix)
    return Case(When(is_unlinked, then=Value(None)), default=F(f"{prefix}team__slug"), output_field=CharField())


def public_columns(row: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a copy of a system's columns with anonymous details replaced.

    Args:
        row: Columns of the system, which must include `anonymous_until`.
        prefix: Lookup path that the column names start with.
    """
    columns = dict(row)
    if row[f"{prefix}anonymous_until"] is not None:
        columns.update({prefix + name: value for name, value in HIDDEN_COLUMNS.items() if prefix + name in columns})
    if row.get(f"{prefix}variant_of__anonymous_until") is not None:
        columns.update({f"{prefix}variant_of__name": None, f"{prefix}variant_of__slug": None})
    columns.pop(f"{prefix}variant_of__anonymous_until", None)
    return columns


def public_system(system: System) -> System:
    """Return the system itself or, if it is anonymous, a copy without identifying details that must not be saved."""
    if system.anonymous_until is None:
        return system
    masked_system = copy.copy(system)
    masked_system.team = masked_system.variant_of = None
    for name in ("participant", "authors", "paper_url", "code_url", "model_url", "bibtex"):
        setattr(masked_system, name, "")
    return masked_system


def unnamed_seeds(seeds: Iterable[tuple[str, Content]]) -> list[tuple[str, Content]]:
    """Return the seeds labelled by number, because their own labels may contain file names."""
    return [(f"seed {number}", content) for number, (_, content) in enumerate(seeds, 1)]


def public_team_name(system: System) -> str:
    """Return the public name of the system's participant or team; empty if it has neither."""
    if system.anonymous_until is not None:
        return ANONYMOUS
    return system.participant or (system.team.name if system.team else "")
