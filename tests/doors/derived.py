"""Two more people, who need no columns: what they get follows from what others do.

A *restrained* curator has every right, but has not shown the second factor that the site asks of staff: as any other
user. The owner's *token* is good, and may read: nobody to pages, to calls the owner as far as they say that reading is
enough.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from django.urls import resolve

from submissions.models import Scope
from tests.doors.expected import PEOPLE
from tests.doors.walking import Door

EVERYBODY = (*PEOPLE, "restrained", "token")

#: What is the other user's own, and so no curator's.
_NOT_THE_OTHERS = {"challenge-retract": {"POST": "4"}, "invitation": {"GET": "3", "HEAD": "3", "POST": "3"}}


def letters_of(door: Door, method: str) -> dict[str, str]:
    """What each of `EVERYBODY` gets."""
    found = dict(zip(PEOPLE, door.row.of(method, api=door.is_api), strict=True))
    found["restrained"] = _NOT_THE_OTHERS.get(door.name, {}).get(method, found["other"])
    # The old way in, which leads on whoever may go on once they have shown their second factor.
    if door.name == "login" and method in ("GET", "HEAD", "POST"):
        found["restrained"] = ">"
    found["token"] = _of_token(door, method, found)
    return found


def _of_token(door: Door, method: str, letters: Mapping[str, str]) -> str:
    view = resolve(door.address).func
    declared: Any = getattr(getattr(view, "cls", view), "required_scope", None)
    if declared is None:
        return letters["anonymous"]
    if method == "OPTIONS" or not door.is_api:
        return letters["owner"]
    if isinstance(declared, Mapping):
        declared = declared.get("GET" if method == "HEAD" else method)
    return letters["owner"] if declared == Scope.READ else "3"
