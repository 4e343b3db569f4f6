"""What nobody means to send, in every field of every form and call of the site: refused, or taken, never a fault."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection, transaction
from django.test import Client

from tests.doors.content import Site, build
from tests.doors.expected import ROWS
from tests.doors.fields import Form, calls_of, forms_of, names_in_the_source
from tests.doors.walking import doors_of, unrendered

pytestmark = [pytest.mark.django_db, pytest.mark.database]

JUNK = {"5,000 digits": "9" * 5_000, "NUL": "a\0b", "a lone surrogate": "a\ud800b", "1 MB": "x" * 1_000_000}
DATABASES = ("sqlite", "postgresql")
#: The same as bytes of a form's body; half of a pair has no bytes that are UTF-8.
_ENCODED = {name: value.encode("utf-8", "surrogatepass") for name, value in JUNK.items()}


@pytest.fixture
def site(db: None, settings: Any, tmp_path: Path) -> Iterator[Site]:
    """One of everything; nothing is counted, and nothing logged."""
    settings.CACHES = {"default": {"BACKEND": "django.core.cache.backends.locmem.LocMemCache"}}
    settings.STAFF_MFA_REQUIRED = True
    logging.disable(logging.CRITICAL)
    yield build(tmp_path)
    logging.disable(logging.NOTSET)


def faults(client: Client, forms: Sequence[Form], *, api: bool, whole: bool) -> Iterator[str]:
    """What is answered with a fault of ours when fields hold junk.

    `whole`: all at once, and each field alone, the others as they are at first, with every kind of junk. Else all
    fields at once, and one of them alone, with kinds that take turns from form to form, and forms that take turns
    between the databases. What is sent alone is answered without templates: thousands of pages take minutes, and a page
    shows junk in all its fields.
    """
    here = DATABASES.index(connection.vendor)
    for number, form in enumerate(forms):
        if not whole and number // len(JUNK) % len(DATABASES) != here:
            continue
        one = list(form.fields)[number // len(JUNK) % max(len(form.fields), 1) :][:1]
        for kind in JUNK if whole else [list(JUNK)[number % len(JUNK)]]:
            alone = [[name] for name in form.fields] if whole else [one]
            sent = [(list(form.fields), status) for status in _send(client, form, list(form.fields), kind, api=api)]
            with unrendered():
                sent += [(names, status) for names in alone for status in _send(client, form, names, kind, api=api)]
            for names, status in sent:
                if status >= 500:
                    yield f"{form.method.upper()} {form.address}: {status} for {kind} in {', '.join(names)}"


def _send(client: Client, form: Form, names: list[str], kind: str, *, api: bool) -> Iterator[int]:
    if form.method == "get" and kind == "1 MB":  # no server takes such an address
        return
    for address, body, content_type in _requests(form, names, kind, api=api):
        cache.clear()  # whoever asked too often would be told so before anything is read
        with transaction.atomic():
            response = client.generic(form.method.upper(), address, body, content_type=content_type)
            transaction.set_rollback(True)
        yield response.status_code


def _requests(form: Form, names: list[str], kind: str, *, api: bool) -> Iterator[tuple[str, bytes, str]]:
    """Addresses, bodies and types of bodies. A call takes JSON too, where 5,000 digits may be a number."""
    values = {name: value.encode() for name, value in form.fields.items()} | dict.fromkeys(names, _ENCODED[kind])
    if form.method == "get":
        asked = "&".join(f"{name}={''.join(f'%{byte:02X}' for byte in value)}" for name, value in values.items())
        yield f"{form.address}?{asked}", b"", ""
        return
    yield form.address, _multipart(values), "multipart/form-data; boundary=b"
    if api:
        text = json.dumps(form.fields | dict.fromkeys(names, JUNK[kind]))
        yield form.address, text.encode(), "application/json"
        if kind == "5,000 digits":
            yield form.address, text.replace(f'"{JUNK[kind]}"', JUNK[kind]).encode(), "application/json"


def _multipart(values: dict[str, bytes]) -> bytes:
    parts = (
        b'--b\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n' % (name.encode(), value)
        for name, value in values.items()
    )
    return b"".join(parts) + b"--b--\r\n"


WHOLE = pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.long)])


@WHOLE
def test_no_field_of_a_call_breaks_the_site(site: Site, whole: bool) -> None:
    calls = list(calls_of(door for door in doors_of(site, ROWS) if door.is_api))
    assert len({call.address for call in calls}) > 10
    found = list(faults(site.people["owner"], calls, api=True, whole=whole))
    assert not found, "\n".join(found)


@WHOLE
@pytest.mark.parametrize("person", ["owner", "root"])
def test_no_field_of_a_form_breaks_the_site(site: Site, person: str, whole: bool) -> None:
    """As who submits, outside the admin, and as who curates, inside it.

    What no page has a form for now, such as a priority outside of a round, is sent every name that the site reads.
    """
    curates, client = person == "root", site.people[person]
    addresses = [door.address for door in doors_of(site, ROWS) if not door.is_api]
    mine = [each for each in addresses if each.startswith("/admin/") == curates]
    if not whole:  # one database takes these, the other those between them
        first = connection.vendor == "postgresql"
        mine = mine[first :: 10 if curates else 2]
    forms = [form for form in forms_of(client, mine) if form.address in mine and "logout" not in form.address]
    assert len(forms) > (15 if whole else 5)
    seen = {form.address for form in forms if form.method == "post"}
    names = dict.fromkeys(names_in_the_source(), "")
    forms += [Form(each, "post", names) for each in mine if each not in seen and "logout" not in each]
    found = list(faults(client, forms, api=False, whole=whole))
    assert not found, "\n".join(found)
