"""What the admin pages have in common: who, when and why of each change, and no change lost to another.

`CurationAdmin` is what to inherit from. It asks for a reason (`why_required = False` where nothing public can change),
names the person and the reason to everything that is recorded inside (`leaderboard.core.audit.acting`), keeps the
history of the object, and refuses a form that is older than what it would write over.
"""

import re
from collections.abc import Iterable
from typing import Any, ClassVar, cast
from urllib.parse import parse_qsl

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import models
from django.db.models import QuerySet
from django.db.models.constants import LOOKUP_SEP
from django.forms import ModelMultipleChoiceField
from django.forms.models import _get_foreign_key
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import URLPattern, path, reverse
from simple_history.admin import SimpleHistoryAdmin

from leaderboard.admin.forms import (
    FORM_FIELDS,
    LONGEST_REASON,
    OWN_FIELDS,
    CurationForm,
    describe_changes,
    has_history,
)
from leaderboard.core.audit import acting, named, record
from leaderboard.datasets.terms import near_duplicates
from leaderboard.models import Dataset, User
from leaderboard.results.board_rows.revisions import lock_boards

#: Values in records are cut off after so many characters.
_LONGEST = 500
#: No database here has a key as large.
_PAST_ANY_KEY = 2**63
#: Values by field, before and after.
Pair = tuple[dict[str, Any], dict[str, Any]]


class CurationAdmin(SimpleHistoryAdmin):
    """Pages that curators edit."""

    form = CurationForm
    formfield_overrides = FORM_FIELDS
    object_history_template = "admin/curation_history.html"
    change_list_template = "admin/curation_change_list.html"
    change_form_template = "admin/curation_change_form.html"
    delete_confirmation_template = "admin/curation_delete.html"
    list_per_page = 50
    #: Whether saving asks for a reason. Only where nothing public can change may it be left out.
    why_required = True
    #: What may be done with rows by hand, by whoever has the right to.
    may_add = may_change = may_delete = True
    #: Paths of further pages below the list, by name: the method `NAME_view` answers.
    pages: ClassVar[dict[str, str]] = {}
    #: Words for one and for several rows that wait for a decision, and the query of the list that shows these.
    pending: ClassVar[tuple[str, str, str] | None] = None

    def pending_rows(self) -> QuerySet[Any]:
        """Return the rows that wait for a curator's decision: those that the query of `pending` selects."""
        query = self.pending[2].removeprefix("?") if self.pending else ""
        return self.model._default_manager.filter(**dict(parse_qsl(query)))

    def get_urls(self) -> list[URLPattern]:
        prefix = f"{self.opts.app_label}_{self.opts.model_name}"
        views = [(name, route, getattr(self, f"{name}_view")) for name, route in self.pages.items()]
        own = [
            path(route, self.admin_site.admin_view(view), name=f"{prefix}_{name}")
            for name, route, view in views
        ]
        return [*own, *super().get_urls()]

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self.may_add and super().has_add_permission(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_change and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return self.may_delete and super().has_delete_permission(request, obj)

    # --- the form

    def get_form(self, request: HttpRequest, obj: Any = None, change: bool = False, **kwargs: Any) -> Any:
        form: Any = super().get_form(request, obj, change=change, **kwargs)
        form.curation, form.request = self, request
        return form

    def get_changeform_initial_data(self, request: HttpRequest) -> dict[str, Any]:
        """What the address wants a new row to begin with; keys that are none are left out, which Django's fields of
        keys would fail on."""
        initial = super().get_changeform_initial_data(request)
        relations = {field.name for field in self.model._meta.get_fields() if field.is_relation}
        return {
            name: value
            for name, value in initial.items()
            if name not in relations or re.fullmatch(r"[0-9]{1,18}", str(value))
        }

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Append the reason field for users who may save."""
        sets = [
            (title, {**options, "fields": [name for name in options["fields"] if name not in OWN_FIELDS]})
            for title, options in super().get_fieldsets(request, obj)
        ]
        may_save = self.has_change_permission(request, obj) if obj else self.has_add_permission(request)
        if may_save:
            sets.append((None, {"fields": OWN_FIELDS, "classes": ("why",)}))
        return sets

    def inline_rows(self, request: HttpRequest) -> list[tuple[type[models.Model], str]]:
        """Return the models of the inlines, each with the name of its foreign key to this model."""
        return [
            (inline.model, _get_foreign_key(self.model, inline.model, fk_name=inline.fk_name).name)
            for inline in self.get_inline_instances(request)
        ]

    def get_object(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> Any:
        """Return the object, locked while it is saved, so that the second of two simultaneous saves sees the first."""
        self.key_of(object_id)
        if request.method == "POST":
            self.lock(request, object_id, from_field)
        return super().get_object(request, object_id, from_field)

    def lookup_allowed(self, lookup: str, value: Any, request: HttpRequest) -> bool:
        """Lists are filtered by what they offer as filters alone. Django allows every column in an address, and a
        column that no page shows could be read out by asking.
        """
        offered = {self.date_hierarchy, *map(_filtered, self.get_list_filter(request))} - {None}
        is_offered = any(lookup == name or lookup.startswith(f"{name}{LOOKUP_SEP}") for name in offered)
        return is_offered and super().lookup_allowed(lookup, value, request)

    def key_of(self, object_id: str) -> Any:
        """Return the key in an address. Raises Http404 if it cannot be one."""
        try:
            key = self.model._meta.pk.to_python(object_id)
        except ValidationError:
            key = None
        if key is None or (isinstance(key, int) and not 0 <= key < _PAST_ANY_KEY):
            raise Http404(f"No {self.model._meta.verbose_name} has this number.")
        return key

    def lock(self, request: HttpRequest, object_id: str, from_field: str | None = None) -> None:
        """Lock the boards that show the object, then its row, until the commit."""
        key = self.key_of(object_id)
        lock_boards(self.boards_of(key))
        self.lock_row(key)

    def lock_row(self, key: Any) -> None:
        """Lock the object's own row, until the commit."""
        list(self.model._default_manager.select_for_update(no_key=True).filter(pk=key).values_list("pk"))

    def boards_of(self, key: Any) -> Iterable[int]:
        """Return the ids of the datasets whose boards change when the object with this key is saved."""
        return ()

    def tools(self, request: HttpRequest, obj: Any) -> list[tuple[str, str]]:
        """Return links to further pages about the object, as words and address."""
        return []

    def acts(self, obj: Any) -> Iterable[str]:
        """Return the names of the list's actions that the object's own page offers in its present state."""
        return ()

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: Any = None
    ) -> Any:
        """Show the object's page with links to further pages and the actions that the person may use."""
        obj = self.get_queryset(request).filter(pk=self.key_of(object_id)).first()
        context: dict[str, Any] = {"tools": [], "acts": []}
        if obj is not None and request.method == "GET":
            allowed = self.get_actions(request)
            acts = [(name, allowed[name][0].button) for name in self.acts(obj) if name in allowed]
            context = {"tools": self.tools(request, obj), "acts": acts}
        return super().change_view(request, object_id, form_url, {**(extra_context or {}), **context})

    # --- who and why

    def changeform_view(
        self,
        request: HttpRequest,
        object_id: str | None = None,
        form_url: str = "",
        extra_context: Any = None,
    ) -> Any:
        with acting(curator(request), reason_of(request)):
            return super().changeform_view(request, object_id, form_url, extra_context)

    def changelist_view(self, request: HttpRequest, extra_context: Any = None) -> Any:
        with acting(curator(request), reason_of(request)):
            return super().changelist_view(request, extra_context)

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> Any:
        """Delete with a reason."""
        if not self.has_delete_permission(request):
            raise PermissionDenied
        why = reason_of(request)
        if request.method == "POST" and self.why_required and not why:
            messages.error(request, "Nothing was deleted: say why in a few words.")
            return HttpResponseRedirect(request.get_full_path())
        with acting(curator(request), why):
            return super().delete_view(request, object_id, extra_context)

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Save, write down what was changed, and update what depends on it."""
        super().save_model(request, obj, form, change)
        for warning in near_duplicates(obj, form.changed_data):
            messages.warning(request, warning)
        before, after = self._changes(form)
        if after or not change:
            record(
                "edited" if change else "added", self._named(obj), dataset=_dataset_of(obj),
                before=before if change else {}, after=after,
            )  # fmt: skip
        self.follow(obj)

    def follow(self, obj: Any) -> None:
        """Update boards and pages that depend on a saved object."""

    def save_formset(self, request: HttpRequest, form: Any, formset: Any, change: bool) -> None:
        """Save the rows that are edited on the same page, and write down each that was changed."""
        rows = [(row, row.instance._state.adding) for row in formset.forms if row.has_changed()]
        super().save_formset(request, form, formset, change)
        for row, new in rows:
            deleted = row in formset.deleted_forms
            if deleted and new:
                continue
            if deleted:
                before, after = self._pair(row, [name for name in row.initial if name in row.fields])
            else:
                before, after = self._changes(row)
            record(
                "deleted" if deleted else "added" if new else "edited",
                f"{row.instance._meta.verbose_name} {row.instance}",
                dataset=_dataset_of(form.instance) or _dataset_of(row.instance),
                before={} if new else before,
                after={} if deleted else after,
            )

    def delete_model(self, request: HttpRequest, obj: Any) -> None:
        """Delete, and write it down."""
        subject, dataset, before = self._named(obj), _dataset_of(obj), self.lost(obj)
        super().delete_model(request, obj)
        record("deleted", subject, dataset=dataset, before=before)

    def lost(self, obj: Any) -> dict[str, Any]:
        """Return what the audit record keeps of a deleted object."""
        return {}

    def _named(self, obj: Any) -> str:
        """Return the object's name in audit records."""
        return named(obj) if isinstance(obj, User) else f"{self.model._meta.verbose_name} {obj}"

    def recorded(self, name: str, value: Any) -> Any:
        """Return a field's value as audit records store it. Override it for values that they must not store."""
        if value is None or isinstance(value, (bool, int, float)):
            return value
        plain = value if isinstance(value, (list, dict)) else named(value)
        return plain if len(str(plain)) <= _LONGEST else f"{str(plain)[:_LONGEST]}…"

    def _changes(self, form: Any) -> Pair:
        """Return the changed fields before and after; of a multiple choice only the removed and the added rows."""
        return self._pair(form, [name for name in form.changed_data if name in form.cleaned_data])

    def _pair(self, form: Any, names: Iterable[str]) -> Pair:
        before: dict[str, Any] = {}
        after: dict[str, Any] = {}
        for name in names:
            old = _chosen(form.fields[name], form.initial.get(name))
            new = form.cleaned_data.get(name)
            if isinstance(form.fields[name], ModelMultipleChoiceField):
                had, has = ({named(each) for each in rows or ()} for rows in (old, new))
                before[name], after[name] = sorted(had - has), sorted(has - had)
            else:
                before[name], after[name] = self.recorded(name, old), self.recorded(name, new)
        return before, after

    def get_actions(self, request: HttpRequest) -> Any:
        """Return the actions that the curator may see. Rows are deleted one by one, with a reason."""
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
        self.key_of(object_id)
        if not has_history(self.model):
            return admin.ModelAdmin.history_view(self, request, object_id, extra_context)
        return super().history_view(request, object_id, extra_context)

    def history_form_view(
        self, request: HttpRequest, object_id: str, version_id: str, extra_context: Any = None
    ) -> HttpResponse:
        """Redirect to the list of changes. Old states are not restored, since boards would not be updated."""
        if not self.has_view_or_change_permission(request):
            raise PermissionDenied
        opts = self.model._meta
        return HttpResponseRedirect(
            reverse(f"admin:{opts.app_label}_{opts.model_name}_history", args=[object_id])
        )

    def revert_disabled(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return True: see `history_form_view`."""
        return True

    def set_history_delta_changes(
        self, request: HttpRequest, historical_records: Any, foreign_keys_are_objs: bool = True
    ) -> None:
        """Give each row of the history what it changed."""
        for row in historical_records:
            row.changes = describe_changes(row)


class ReadOnlyAdmin(CurationAdmin):
    """Rows that only the site itself writes."""

    may_add = may_change = may_delete = False


def curator(request: HttpRequest) -> User:
    """Return the signed-in curator."""
    return cast(User, request.user)


def reason_of(request: HttpRequest) -> str:
    """Return the reason that was sent with a form, or an empty text."""
    return (
        request.POST.get("why", "").replace("\0", "").strip()[:LONGEST_REASON]
        if request.method == "POST"
        else ""
    )


def _filtered(item: Any) -> Any:
    """Return the column or query parameter of an item of `list_filter`."""
    if isinstance(item, type):
        return getattr(item, "parameter_name", None)
    return item[0] if isinstance(item, (list, tuple)) else item


def _chosen(field: Any, value: Any) -> Any:
    """Return the row of a form's initial key, or the value itself."""
    queryset = getattr(field, "queryset", None)
    if queryset is None or value in (None, "") or isinstance(value, list):
        return value
    return queryset.model._default_manager.filter(pk=value).first() or value


def _dataset_of(obj: Any) -> Any:
    return obj if isinstance(obj, Dataset) else getattr(obj, "dataset", None)
