"""Preview of reported results: the values that boards will show, and warnings, without storing anything."""

from collections.abc import Sequence
from typing import Any

from django.db import transaction
from django.utils.translation import gettext as _

from leaderboard.core.text.numbers import DECIMALS, format_quantity, format_value
from leaderboard.importing.reported.loader import CuratedFigure, enter_figures
from leaderboard.models import Entry, Source, System
from leaderboard.results.reported_facts import board_unit, board_value


def preview_figures(source: Source, figures: Sequence[CuratedFigure]) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the changes of each result that `enter_figures` will store (`name`, `changes`), and warnings.

    `source` may be a new publication. Everything is stored and rolled back, so that the preview is exact.
    """
    pk, key = source.pk, source.key
    names = set(System.objects.filter(source=pk).values_list("name", flat=True)) if pk else set()
    with transaction.atomic():
        before = _board_values(source) if pk else {}
        enter_figures(source, figures)
        after = _board_values(source)
        transaction.set_rollback(True)
    source.pk, source.key, source._state.adding = pk, key, pk is None
    rows = []
    for (system, name), values in after.items():
        old = before.get((system, name), {})
        changes = [
            {"field": field, "old": old.get(field, ""), "new": new}
            for field, new in values.items()
            if old.get(field) != new
        ]
        if changes:
            rows.append({"name": name if system in names else f"{name} ({_('new system')})", "changes": changes})
    warnings = [
        _("%(system)s: %(value)s percent is a share of %(share)g. Did you mean the scale share?")
        % {"system": figure.system, "value": figure.value, "share": figure.share}
        for figure in figures
        if figure.scale == "percent" and figure.share <= 0.01
    ]
    return rows, warnings


def _board_values(source: Source) -> dict[tuple[str, str], dict[str, str]]:
    """Return the values of the publication's results as boards show them, by system and description of the result."""
    rows, entries = {}, Entry.objects.filter(provenance=Entry.Provenance.REPORTED, source=source)
    for entry in entries.select_related("system", "dataset"):
        values = {name: format_value(score, DECIMALS) for name, score in entry.scores.items()}
        for figure in entry.figures:
            if figure["name"] not in entry.scores:
                name = ", ".join(filter(None, (figure["name"], figure["hardware"])))
                values[name] = f"{board_value(figure)[1]} {board_unit(figure)[0]}"
        if entry.system.parameter_count is not None:
            values[_("parameters")] = f"{format_quantity(entry.system.parameter_count / 1e6)} M"
        values[_("page or table")] = entry.locator
        rows[entry.system.name, f"{entry}{f', {entry.configuration}' if entry.configuration else ''}"] = values
    return rows
