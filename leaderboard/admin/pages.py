"""Pages of the admin that are no model's form: the frame, the rights, and the page that asks why before acting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from evaluation.core.errors import InvalidContent
from leaderboard.admin.base import CurationAdmin, curator
from leaderboard.admin.forms import WhyField
from leaderboard.core.audit import acting
from leaderboard.results.board_rows.revisions import lock_boards

#: A link of the way to a page: its words, and its address.
Crumb = tuple[str, str]


class ActionRefused(Exception):
    """An act that could not be done, with what is wrong and what would be right, for the curator to read."""


def require(request: HttpRequest, *rights: str) -> None:
    """Raises PermissionDenied for whoever lacks one of the rights, such as `leaderboard.judge_dataset`."""
    if not request.user.has_perms(rights):
        raise PermissionDenied


def list_crumb(page: admin.ModelAdmin) -> Crumb:
    """The way back to the list of what the page is about."""
    opts = page.model._meta
    named = str(opts.verbose_name_plural)
    return named[:1].upper() + named[1:], reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")


def object_crumb(page: admin.ModelAdmin, obj: Any) -> Crumb:
    """The way back to one row."""
    opts = page.model._meta
    return str(obj), reverse(f"admin:{opts.app_label}_{opts.model_name}_change", args=[obj.pk])


def curation_page(
    request: HttpRequest,
    page: admin.ModelAdmin,
    template: str,
    title: str,
    *,
    crumbs: Iterable[Crumb] = (),
    problems: Iterable[Mapping[str, Any]] = (),
    status: int | None = None,
    **context: Any,
) -> TemplateResponse:
    """Answer with a template that extends `admin/curation_base.html`.

    The way to it leads over the model's list and `crumbs`. `problems` are dictionaries as everywhere
    (`message`, `lines`, `hint`, …); they are listed above the page. Without a `status` the answer is 400 where
    there are problems, or errors of the context's `form`.
    """
    problems, form = list(problems), context.get("form")
    if status is None:
        status = 400 if problems or (form is not None and form.errors) else 200
    values = {
        **page.admin_site.each_context(request),
        "opts": page.model._meta,
        "title": title,
        "crumbs": [list_crumb(page), *crumbs],
        "problems": problems,
        **context,
    }
    return TemplateResponse(request, template, values, status=status)


class ReasonForm(forms.Form):
    """What is asked before an act: the reason. Inherit to ask for more."""

    why = WhyField()


def submit(
    request: HttpRequest,
    form: forms.BaseForm,
    act: Callable[[Mapping[str, Any]], str],
    *refusals: type[Exception],
) -> tuple[HttpResponse | None, list[dict[str, Any]]]:
    """Do what a form with a reason asks for, once it is sent and valid: the redirect, and else what is wrong.

    `act` takes what the form says and returns an address. It raises InvalidContent, or one of the refusals.
    """
    if request.method == "POST" and form.is_valid():
        try:
            with acting(curator(request), form.cleaned_data["why"]):
                return HttpResponseRedirect(act(form.cleaned_data)), []
        except InvalidContent as error:
            return None, [each.as_dict() for each in error.report.problems]
        except refusals as error:
            return None, [{"message": str(error)}]
    return None, []


def confirm(
    page: admin.ModelAdmin,
    request: HttpRequest,
    chosen: QuerySet[Any],
    act: Callable[[Any, Mapping[str, Any]], str],
    *,
    title: str,
    explanation: str,
    button: str,
    form_class: type[ReasonForm] = ReasonForm,
    danger: bool = False,
    refusals: tuple[type[Exception], ...] = (),
) -> TemplateResponse | None:
    """The answer of an admin action that asks why, then acts on every chosen row in one transaction, or on none.

    `act` takes a row and what the form says, does the thing, and returns a sentence about it; it raises
    `ActionRefused`, or one of the refusals, where that cannot be.
    """
    sent = "confirmed" in request.POST
    form = form_class(request.POST if sent else None)
    refused: tuple[type[Exception], ...] = (ActionRefused, *refusals)
    problems: list[dict[str, Any]] = []
    if sent and form.is_valid():
        done = []
        try:
            with transaction.atomic(), acting(curator(request), form.cleaned_data["why"]):
                if isinstance(page, CurationAdmin):
                    # All at once, in the order in which all boards are locked.
                    keys = list(chosen.values_list("pk", flat=True))
                    lock_boards(dataset for key in keys for dataset in page.boards_of(key))
                for row in chosen.order_by("pk"):
                    done.append(act(row, form.cleaned_data))
        except refused as error:
            problems = [{"message": f"{str(error).removesuffix('.')}."}]
        else:
            for sentence in done:
                messages.success(request, sentence)
            return None
    return curation_page(
        request, page, "admin/curation_ask.html", title,
        problems=problems, form=form, chosen=chosen,
        explanation=explanation, button=button, danger=danger, action=request.POST.get("action", ""),
        checkbox=ACTION_CHECKBOX_NAME,
    )  # fmt: skip


def confirmed_action(
    description: str,
    right: str,
    act: Callable[[Any, Mapping[str, Any]], str],
    *,
    listed: bool = False,
    **options: Any,
) -> Callable[[admin.ModelAdmin, HttpRequest, QuerySet[Any]], TemplateResponse | None]:
    """An admin action that is a call of `confirm`, for whoever has the right. Others do not see it, unless `listed`."""

    @admin.action(description=description)
    def action(
        page: admin.ModelAdmin, request: HttpRequest, chosen: QuerySet[Any]
    ) -> TemplateResponse | None:
        require(request, right)
        return confirm(page, request, chosen, act, **options)

    action.button = options["button"]  # type: ignore[attr-defined]  # read by CurationAdmin, as is:
    action.hidden_without = () if listed else (right,)  # type: ignore[attr-defined]  # read by CurationAdmin
    return action
