"""Read-only admin of the audit log."""

from django.contrib import admin
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from evaluation.core.problems import format_count
from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.forms import EMPTY_VALUE, display_value
from leaderboard.models import AuditRecord


@admin.register(AuditRecord)
class AuditRecordAdmin(ReadOnlyAdmin):
    """Admin of audit records."""

    list_display = ("at", "who", "action", "subject", "of_dataset", "change", "reason")
    list_filter = ("action", ("at", admin.DateFieldListFilter), ("dataset", admin.RelatedOnlyFieldListFilter), "actor")
    list_select_related = ("dataset", "actor")
    search_fields = ("subject", "actor_name", "reason", "dataset__slug")
    date_hierarchy = "at"
    fields = ("at", "who", "action", "subject", "of_dataset", "entry_id", "revision", "reason", "changes")
    readonly_fields = ("who", "of_dataset", "changes")
    show_full_result_count = False

    @admin.display(description="dataset", ordering="dataset")
    def of_dataset(self, record: AuditRecord) -> str:
        return record.dataset.slug if record.dataset_id and record.dataset else ""

    @admin.display(description="who", ordering="actor_name")
    def who(self, record: AuditRecord) -> str:
        """Return the person's current name, or else the name at the time of the record."""
        return (record.actor.name if record.actor else "") or record.actor_name

    @admin.display(description="change")
    def change(self, record: AuditRecord) -> str:
        """Return a sentence about the record's first changed value and the number of others, or an empty string."""
        rows = list_changes(record)
        if not rows:
            return ""
        name, before, after = rows[0]
        name = name.removeprefix("scores: ")
        if before == EMPTY_VALUE:
            sentence = f"{name} set to {after}"
        elif after == EMPTY_VALUE:
            sentence = f"{name} removed, was {before}"
        else:
            sentence = f"{name} changed from {before} to {after}"
        return f"{sentence}, and {format_count(len(rows) - 1, 'more value')}" if len(rows) > 1 else sentence

    @admin.display(description="before → after")
    def changes(self, record: AuditRecord) -> SafeString:
        """Return an HTML table of the changed values, before and after."""
        rows = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td><td>{}</td></tr>', list_changes(record))
        return format_html(
            '<table><thead><tr><th scope="col">Field</th><th scope="col">Before</th><th scope="col">After</th></tr>'
            "</thead><tbody>{}</tbody></table>",
            rows,
        )


def list_changes(record: AuditRecord) -> list[tuple[str, str, str]]:
    """Return (name, old value, new value) of each changed value as text.

    Dictionaries, such as scores, have one item per key.
    """
    before, after = _flatten(record.before), _flatten(record.after)
    return [
        (name, display_value(before.get(name)), display_value(after.get(name)))
        for name in dict.fromkeys([*before, *after])
        if before.get(name) != after.get(name)
    ]


def _flatten(values: dict[str, object]) -> dict[str, object]:
    """Return the values by readable name; each key of a dictionary becomes an item “name: key”."""
    flat_values: dict[str, object] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat_values.update({f"{name.replace('_', ' ')}: {key}": part for key, part in value.items()})
        else:
            flat_values[name.replace("_", " ")] = value
    return flat_values
