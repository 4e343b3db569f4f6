"""Base classes of the curation pages, which record author, time and reason of each change and detect edit conflicts.

`CurationAdmin` is the class to inherit from. It asks for a reason (unless `why_required = False` because no public data
can change), passes person and reason to all records (`leaderboard.core.audit.acting`), keeps the object's history, and
rejects forms that are older than the object.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, ClassVar, cast
from urllib.parse import parse_qsl

from django.contrib import admin, messages
from django.contrib.admin.utils import display_for_field
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.db.models import QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.forms import ModelMultipleChoiceField
from django.forms.models import _get_foreign_key
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst
from django.utils.translation import gettext
from simple_history.admin import SimpleHistoryAdmin

from leaderboard.admin.forms import FORM_FIELDS, LONGEST_REASON, OWN_FIELDS, CurationForm, describe_changes, has_history
from leaderboard.core.audit import acting, record, subject_name
from leaderboard.core.text.plain import plain_text
from leaderboard.datasets.terms import near_duplicates
from leaderboard.models import Dataset, User
from leaderboard.results.board_rows.revisions import lock_boards

#: Maximum length of values in audit records, in characters.
_MAX_LENGTH = 500
#: Maximum length of labels in badges, in characters.
_MAX_BADGE_LENGTH = 25
#: One more than the maximum key of the databases.
_PAST_ANY_KEY = 2**63
#: Values by field, before and after a change.
Pair = tuple[dict[str, Any], dict[str, Any]]


class CurationAdmin(SimpleHistoryAdmin):
    """Base class of pages that curators edit."""

    form = CurationForm
    formfield_overrides = FORM_FIELDS
    object_history_template = "admin/curation_history.html"
    change_list_template = "admin/curation_change_list.html"
    change_form_template = "admin/curation_change_form.html"
    delete_confirmation_template = "admin/curation_delete.html"
    list_per_page = 50
    #: Labels and help texts of fields on the form that replace those of the model.
    labels: ClassVar[dict[str, str]] = {
        "bibtex": "BibTeX", "closed_api": "Closed API", "code_url": "Code URL", "licence": "License",
        "locator": "Page or table", "model_url": "Model URL", "paper_url": "Paper URL", "source": "Publication",
        "url": "URL", "is_baseline": "Baseline", "ir_datasets_id": "ir_datasets id", "beir_name": "BEIR name",
    }  # fmt: skip
    help_texts: ClassVar[dict[str, str]] = {}
    #: Whether saving requires a reason. It may be optional only if no public data can change.
    why_required = True
    #: Operations that users with the respective permission may perform.
    may_add = may_change = may_delete = True
    #: Paths of additional pages below the list, by name; the method `NAME_view` handles each.
    pages: ClassVar[dict[str, str]] = {}
    #: Phrases for one and for several pending rows, and the query string of the list that shows them.
    pending: ClassVar[tuple[str, str, str] | None] = None
    #: Field with the time since when a pending row waits; empty if no field has it.
    pending_since: ClassVar[str] = "created_at"

    #: Pages that start a task: label, URL name, and permissions. Lists and the index link to them.
    task_pages: ClassVar[tuple[tuple[str, str, tuple[str, ...]], ...]] = ()

    def task_links(self, request: HttpRequest) -> list[tuple[str, str]]:
        """Return the labels and URLs of the task pages that the user may open."""
        return [(label, reverse(name)) for label, name, rights in self.task_pages if request.user.has_perms(rights)]

    @property
    def search_help_text(self) -> str:  # type: ignore[override]
        """Names of the searched columns, shown as the placeholder of the search."""
        names = dict.fromkeys(field.split(LOOKUP_SEP)[0] for field in self.search_fields)
        return capfirst(", ".join(self.labels.get(name, name).replace("_", " ").lower() for name in names))

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns, with states as badges."""
        return [_BADGES.get(str(name), name) for name in super().get_list_display(request)]

    def operations(self) -> tuple[Iterable[str], Iterable[tuple[str, int]]]:
        """Return a sentence about each problem of the site, and figures with labels; the index links to this list."""
        return (), ()

    def pending_rows(self) -> QuerySet[Any]:
        """Return the rows that match the query string of `pending`, which await a curator's decision."""
        query = self.pending[2].removeprefix("?") if self.pending else ""
        return self.model._default_manager.filter(**dict(parse_qsl(query)))

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the additional `pages`, each handled by the method `NAME_view`, before Django's own."""
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        views = [(name, route, getattr(self, f"{name}_view")) for name, route in self.pages.items()]
        extra_urls = [
            path(route, self.admin_site.admin_view(view), name=f"{prefix}_{name}") for name, route, view in views
        ]
        return [*extra_urls, *super().get_urls()]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may_add and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_change and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_delete and super().has_delete_permission(request, obj)

    def get_action_choices(self, request: HttpRequest, default_choices: Any = None) -> Any:
        return super().get_action_choices(request, [("", gettext("Choose an action"))])

    # --- the form

    def formfield_for_foreignkey(self, db_field: Any, request: HttpRequest, **options: Any) -> Any:
        """Return the form field. Its empty choice is called “None” if it can be saved."""
        empty = {"empty_label": gettext("None")} if db_field.blank else {}
        return super().formfield_for_foreignkey(db_field, request, **{**options, **empty})

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        texts = {"labels": self.labels, "help_texts": self.help_texts}
        form: Any = super().get_form(request, obj, change=change, **texts, **kwargs)
        form.curation, form.request = self, request
        return form

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """Return the form's initial values from the URL, without foreign keys that are not numbers.

        Such keys would raise an error in Django's fields.
        """
        initial = super().get_changeform_initial_data(request)
        relations = {field.name for field in self.model._meta.get_fields() if field.is_relation}
        return {
            name: value
            for name, value in initial.items()
            if name not in relations or re.fullmatch(r"[0-9]{1,18}", str(value))
        }

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets; if the user may save, the last one has the reason and the version token.

        Otherwise, JSON dictionaries are shown as tables, and fields without a value are hidden.
        """
        sets: list[tuple[Any, dict[str, Any]]] = [
            (title, {**options, "fields": [name for name in options["fields"] if name not in OWN_FIELDS]})
            for title, options in super().get_fieldsets(request, obj)
        ]
        may_save = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        if may_save:
            return [*sets, (None, {"fields": OWN_FIELDS, "classes": ("why",)})]
        tables = {field.name: _json_table(field) for field in self.opts.fields if isinstance(field, models.JSONField)}
        for _, options in sets:
            names = [name for name in options["fields"] if getattr(obj, str(name), True) not in (None, "", {}, [])]
            options["fields"] = [tables.get(name, name) for name in names]
        return [(title, options) for title, options in sets if options["fields"]]

    def inline_rows(self, request: HttpRequest) -> list[tuple[type[models.Model], str]]:
        """Return the models of the inlines, each with the name of its foreign key to this model."""
        return [
            (inline.model, _get_foreign_key(self.model, inline.model, fk_name=inline.fk_name).name)
            for inline in self.get_inline_instances(request)
        ]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the object. For POST requests, first lock its boards and its row.

        The second of two simultaneous saves therefore sees the first. Raises Http404 for an invalid key.
        """
        self.parse_key(object_id)
        if request.method == "POST":
            self.lock(request, object_id, from_field)
        return super().get_object(request, object_id, from_field)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Return whether the lookup belongs to one of the list's filters or to its date hierarchy.

        Django allows filtering by any column, which would disclose columns that no page shows.
        """
        offered_filters = {self.date_hierarchy, *map(_filter_name, self.get_list_filter(request))} - {None}
        is_offered = any(lookup == name or lookup.startswith(f"{name}{LOOKUP_SEP}") for name in offered_filters)
        return is_offered and super().lookup_allowed(lookup, value, request)

    def parse_key(self, object_id: str) -> Any:
        """Return the primary key in a URL. Raises Http404 if the text is not a valid key."""
        try:
            key = self.model._meta.pk.to_python(object_id)
        except ValidationError:
            key = None
        if key is None or (isinstance(key, int) and not 0 <= key < _PAST_ANY_KEY):
            raise Http404(f"There is no {self.model._meta.verbose_name} with this number.")
        return key

    def lock(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Lock the boards that show the object, then its row, until the transaction ends."""
        key = self.parse_key(object_id)
        lock_boards(self.get_board_ids(key))
        self.lock_row(key)

    def lock_row(self, key: Any) -> None:
        list(self.model._default_manager.select_for_update(no_key=True).filter(pk=key).values_list("pk"))

    def get_board_ids(self, key: Any) -> Iterable[int]:
        """Return the ids of datasets with boards that change when the object with this key is saved."""
        return ()

    def tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        """Return links to additional pages about the object, as label and URL."""
        return []

    def acts(self, obj: Any) -> Iterable[str]:
        """Return the names of the list actions that the object's page offers in its current state."""
        return ()

    def change_context(self, obj: Any) -> dict[str, Any]:
        """Return additional context of the object's page."""
        return {}

    def change_view(self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None) -> Any:
        """Show or save the object's page.

        It has links to additional pages, and the object's actions that the user may perform.
        """
        obj = self.get_queryset(request).filter(pk=self.parse_key(object_id)).first()
        context: dict[str, Any] = {"tools": [], "acts": [], "title": str(obj), "subtitle": ""}
        if obj is not None and request.method == "GET":
            actions = self.get_actions(request)
            acts = [(name, actions[name][0]) for name in self.acts(obj) if name in actions]
            context |= {"tools": self.tools(request, obj), "acts": acts, **self.change_context(obj)}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **context})

    # --- author and reason

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "", extra_context: Any = None
    ) -> Any:
        with acting(curator(request), get_reason(request)):
            return super().changeform_view(request, object_id, form_url, extra_context)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        with acting(curator(request), get_reason(request)):
            title = capfirst(self.opts.verbose_name_plural)
            links = self.task_links(request)
            if self.has_add_permission(request):
                url = reverse(f"admin:{self.opts.app_label}_{self.opts.model_name}_add")
                links.append((gettext("Add %s") % self.opts.verbose_name, url))
            context = {"title": title, "task_pages": links, **(extra_context or {})}
            return super().changelist_view(request, context)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Confirm and delete the object, and record the deletion with a reason.

        If a required reason is missing, the user sees an error and the same page again. Raises PermissionDenied.
        """
        if not self.has_delete_permission(request):
            raise PermissionDenied
        reason = get_reason(request)
        if request.method == "POST" and self.why_required and not reason:
            messages.error(request, "The object was not deleted. Give a reason in a few words.")
            return HttpResponseRedirect(request.get_full_path())
        with acting(curator(request), reason):
            return super().delete_view(request, object_id, extra_context)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save the object, warn about similar terms, record the changed fields, and update dependents."""
        super().save_model(request, obj, form, change)
        for warning in near_duplicates(obj, form.changed_data):
            messages.warning(request, warning)
        before, after = self._changes(form)
        if after or not change:
            record(
                "edited" if change else "added", self._record_name(obj), dataset=_get_dataset(obj),
                before=before if change else {}, after=after,
            )  # fmt: skip
        self.update_dependents(obj)

    def update_dependents(self, obj: Any) -> None:
        """Update boards and pages that depend on a saved object."""

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save the inline rows, and record each added, edited, or deleted one."""
        rows = [(row, row.instance._state.adding) for row in formset.forms if row.has_changed()]
        super().save_formset(request, form, formset, change)
        for row, is_new in rows:
            is_deleted = row in formset.deleted_forms
            if is_deleted and is_new:
                continue
            if is_deleted:
                before, after = self._audit_values(row, [name for name in row.initial if name in row.fields])
            else:
                before, after = self._changes(row)
            dataset = _get_dataset(form.instance) or _get_dataset(row.instance)
            record(
                "deleted" if is_deleted else "added" if is_new else "edited",
                f"{row.instance._meta.verbose_name} {row.instance}", dataset=dataset,
                before={} if is_new else before, after={} if is_deleted else after,
            )  # fmt: skip

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete the object and record the deletion."""
        subject, dataset, before = self._record_name(obj), _get_dataset(obj), self.deleted_values(obj)
        super().delete_model(request, obj)
        record("deleted", subject, dataset=dataset, before=before)

    def deleted_values(self, obj: Any) -> dict[str, Any]:
        """Return the values of a deleted object to store in its audit record."""
        return {}

    def _record_name(self, obj: Any) -> str:
        """Return the object's name in audit records."""
        return subject_name(obj) if isinstance(obj, User) else f"{self.model._meta.verbose_name} {obj}"

    def audit_value(self, name: str, value: Any) -> Any:
        """Return a field's value for the audit record: related rows by name, and long values as truncated text.

        Override it for values that must not be stored.
        """
        if value is None or isinstance(value, (bool, int, float)):
            return value
        stored_value = value if isinstance(value, (list, dict)) else subject_name(value)
        return stored_value if len(str(stored_value)) <= _MAX_LENGTH else f"{str(stored_value)[:_MAX_LENGTH]}…"

    def _changes(self, form: Any) -> Pair:
        """Return the values of the form's changed fields before and after the change; see `_audit_values`."""
        return self._audit_values(form, [name for name in form.changed_data if name in form.cleaned_data])

    def _audit_values(self, form: Any, names: Iterable[str]) -> Pair:
        """Return the audit values of the named form fields before and after the change.

        Multiple choices contain only removed rows before, and only added rows after.
        """
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for name in names:
            old_value = form.initial.get(name)
            queryset = getattr(form.fields[name], "queryset", None)
            if queryset is not None and old_value not in (None, "") and not isinstance(old_value, list):
                # The initial value of a single choice is a primary key.
                old_value = queryset.model._default_manager.filter(pk=old_value).first() or old_value
            new_value = form.cleaned_data.get(name)
            if isinstance(form.fields[name], ModelMultipleChoiceField):
                names_before, names_after = (set(map(subject_name, rows or ())) for rows in (old_value, new_value))
                before[name], after[name] = sorted(names_before - names_after), sorted(names_after - names_before)
            else:
                before[name], after[name] = self.audit_value(name, old_value), self.audit_value(name, new_value)
        return before, after

    def get_actions(self, request: HttpRequest) -> Any:
        """Return the actions, without bulk deletion and without unlisted ones that the user may not perform.

        Bulk deletion cannot ask for the reason that deleting requires.
        """
        actions: dict[str, Any] = super().get_actions(request)
        actions.pop("delete_selected", None)
        return {
            name: action
            for name, action in actions.items()
            if getattr(action[0], "listed", True) or request.user.has_perm(action[0].permission)
        }

    # --- history

    def history_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """Show the object's history, or the admin's own log if the model has none."""
        self.parse_key(object_id)
        if not has_history(self.model):
            return admin.ModelAdmin.history_view(self, request, object_id, extra_context)
        return super().history_view(request, object_id, extra_context)

    def history_form_view(
        self, request: HttpRequest, object_id: str, version_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Redirect to the object's history, because old states cannot be restored without updating boards.

        Raises PermissionDenied if the user may not view the object.
        """
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        opts = self.model._meta
        return HttpResponseRedirect(reverse(f"admin:{opts.app_label}_{opts.model_name}_history", args=[object_id]))

    def revert_disabled(self, request: HttpRequest, obj: Any = None) -> bool:
        return True

    def set_history_delta_changes(
        self, request: HttpRequest, historical_records: Any, foreign_keys_are_objs: bool = True
    ) -> None:
        """Attach to each history row a description of its changes."""
        for row in historical_records:
            row.changes = describe_changes(row)


class ReadOnlyAdmin(CurationAdmin):
    """Base class for rows that only the site itself writes."""

    may_add = may_change = may_delete = False


def folded(title: str, *fields: str, description: str = "") -> Any:
    """Return a folded group of fields for `fieldsets`."""
    return title, {"fields": fields, "description": description, "classes": ("collapse",)}


def curator(request: HttpRequest) -> User:
    return cast(User, request.user)


def get_reason(request: HttpRequest) -> str:
    """Return the reason sent with a form, or an empty string."""
    return request.POST.get("why", "").replace("\0", "").strip()[:LONGEST_REASON] if request.method == "POST" else ""


def _json_table(field: models.JSONField) -> Callable[[Any], str]:
    """Return a read-only field that shows a JSON dictionary as a table of names and values."""

    @admin.display(description=field.verbose_name)
    def display(obj: Any) -> str:
        value = getattr(obj, field.name)
        if not value or not isinstance(value, dict):
            return display_for_field(value, field, "—")
        # Measures such as R_cap@100 keep their underscore.
        rows = (
            (name.replace("_", " ") if name.islower() else name, plain_text(each))
            for name, each in value.items()
            if each not in (None, "", {}, [])
        )
        row_html = format_html_join("", '<tr><th scope="row">{}</th><td>{}</td></tr>', rows)
        return format_html('<table class="values">{}</table>', row_html)

    display.__name__ = field.name
    return display


def _badge(field_name: str) -> Callable[[Any], str]:
    """Return a column that shows a field's choice as a badge.

    A badge with a long label shows the stored value, with the label as its title.
    """

    @admin.display(description=field_name.replace("_", " "), ordering=field_name)
    def display(obj: Any) -> str:
        value, label = getattr(obj, field_name), getattr(obj, f"get_{field_name}_display")()
        title = format_html(' title="{}"', label) if len(label) > _MAX_BADGE_LENGTH else ""
        return format_html('<span class="badge is-{}"{}>{}</span>', value, title, value if title else label)

    display.__name__ = field_name
    return display


#: Columns of choices that lists show as badges.
_BADGES = {name: _badge(name) for name in ("state", "visibility", "provenance", "mail_state")}


def _filter_name(item: Any) -> Any:
    """Return the column or query parameter of an item of `list_filter`."""
    if isinstance(item, type):
        return getattr(item, "parameter_name", None)
    return item[0] if isinstance(item, (list, tuple)) else item


def _get_dataset(obj: Any) -> Any:
    return obj if isinstance(obj, Dataset) else getattr(obj, "dataset", None)
