"""A curator at the admin's forms, as a browser would: opens one, changes fields, says why, and saves."""

from __future__ import annotations

from typing import Any

from django.forms import BoundField, MultiWidget
from django.test import Client


def filled(client: Client, address: str) -> dict[str, Any]:
    """What the form at the address would send if nothing was changed in it."""
    context = client.get(address).context
    data: dict[str, Any] = {}
    forms = [context["adminform"].form]
    for inline in context["inline_admin_formsets"]:
        formset = inline.formset
        forms += [formset.management_form, *formset.forms]
    for form in forms:
        for bound in form:
            value = bound.value()
            if bound.name == "why" or value is None or value is False:
                continue
            data.update(_sent(bound, value))
    return data


def _sent(bound: BoundField, value: Any) -> dict[str, Any]:
    """What a field sends: a time by its date and its hour."""
    widget = bound.field.widget
    if isinstance(widget, MultiWidget):
        parts = zip(widget.widgets_names, widget.decompress(value), strict=True)
        return {bound.html_name + name: str(part) for name, part in parts}
    return {bound.html_name: _text(value)}


def _text(value: Any) -> Any:
    if value is True:
        return "on"
    return [str(each) for each in value] if isinstance(value, (list, tuple)) else str(value)


def save(client: Client, address: str, why: str = "for a test", **changes: Any) -> Any:
    """Change the form at the address, say why, and send it; a field that is None is left out. The answer to it."""
    data = {**filled(client, address), "why": why, **changes}
    return client.post(address, {name: value for name, value in data.items() if value is not None})
