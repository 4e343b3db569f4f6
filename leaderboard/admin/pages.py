"""Frame of admin pages that are not model forms, and operations that ask for a reason."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.helpers import ACTION_CHECKBOX_NAME
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.formats import localize
from django.utils.html import format_html, format_html_join
from django.utils.text import capfirst

from evaluation.core.problems import InvalidContent
from leaderboard.admin.base import CurationAdmin, ReadOnlyAdmin, curator
from leaderboard.admin.forms import WhyField
from leaderboard.core.audit import acting
from leaderboard.results.board_rows.revisions import lock_boards

#: Seconds between refreshes of a page that shows work in progress.
REFRESH = 4
#: A breadcrumb: label and URL.
Crumb = tuple[str, str]


class ActionRefused(Exception):
    """An operation failed; the message tells the curator what is wrong and how to fix it."""


def require(request: HttpRequest, *rights: str) -> None:
    """Raise PermissionDenied if the user lacks one of the permissions, such as `leaderboard.judge_dataset`."""
    if not request.user.has_perms(rights):
        raise PermissionDenied


def object_crumb(page: admin.ModelAdmin, obj: Any) -> Crumb:
    """Return the breadcrumb of a row's page."""
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
    """Render a template that extends `admin/curation_base.html`.

    Args:
        request: The request.
        page: Admin of the model, whose list is the first breadcrumb.
        template: Name of the template.
        title: Title of the page.
        crumbs: Further breadcrumbs.
        problems: Dictionaries (`message`, `lines`, `hint`, …) to list above the page.
        status: HTTP status. Default: 400 if there are problems or errors of the context's `form`, else 200.
        context: Further context of the template.
    """
    problems, form, opts = list(problems), context.get("form"), page.model._meta
    list_url = reverse(f"admin:{opts.app_label}_{opts.model_name}_changelist")
    if status is None:
        status = 400 if problems or (form is not None and form.errors) else 200
    values = {
        **page.admin_site.each_context(request), "opts": opts, "title": title,
        "crumbs": [(capfirst(opts.verbose_name_plural), list_url), *crumbs], "problems": problems, **context,
    }  # fmt: skip
    return TemplateResponse(request, template, values, status=status)


class ReasonForm(forms.Form):
    """A form that asks for a reason after the fields of its subclass."""

    required_css_class = "required"
    why = WhyField()

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["why"] = self.fields.pop("why")


def submit(
    request: HttpRequest,
    form: forms.BaseForm,
    act: Callable[[Mapping[str, Any]], str],
    *refusals: type[Exception],
) -> tuple[HttpResponse | None, list[dict[str, Any]]]:
    """Call `act` with the values of a valid POST form.

    Return a redirect to the URL that it returns, or None and the problems. Without a valid form, both are empty.

    Args:
        request: The request.
        form: The form, with a field `why`.
        act: Function of the form's values that returns a URL. May raise InvalidContent or one of the refusals.
        refusals: Expected exceptions, which become problems.
    """
    expected_errors: tuple[type[Exception], ...] = (InvalidContent, *refusals)
    if request.method == "POST" and form.is_valid():
        try:
            with acting(curator(request), form.cleaned_data["why"]):
                return HttpResponseRedirect(act(form.cleaned_data)), []
        except expected_errors as error:
            report = error.report if isinstance(error, InvalidContent) else error
            if hasattr(report, "problems"):
                return None, [problem.as_dict() for problem in report.problems]
            texts = getattr(error, "conflicts", [f"{str(error).removesuffix('.')}."])
            return None, [{"message": text} for text in texts]
    return None, []


class ReviewAdmin(ReadOnlyAdmin):
    """Base class of lists whose rows await decisions, each with its age and a button for each action."""

    def get_list_display(self, request: HttpRequest) -> Any:
        """Return the columns, with one of buttons if the user may decide."""
        columns = super().get_list_display(request)
        return (*columns, "decide") if self.get_actions(request) else columns

    @admin.display(description="waiting since")
    def age(self, obj: Any) -> str:
        time = getattr(obj, self.pending_since)
        return format_html('{}<br><span class="note small">{}</span>', naturaltime(time), localize(time))

    @admin.display(description="decision")
    def decide(self, obj: Any) -> str:
        """Return a button for each action that suits the row; the list has a form for each row."""
        acts = ((name, getattr(self, name)) for name in self.acts(obj))
        buttons = ((act.danger * " is-danger", obj.pk, name, act.button) for name, act in acts)
        html = '<button class="button is-small{}" form="decide-{}" name="action" value="{}">{} …</button>'
        return format_html_join(" ", html, buttons)


@dataclass(frozen=True, slots=True)
class Operation:
    """A curation operation, available as an admin action, which first asks for a reason, and as a command.

    Attributes:
        short_description: Name of the action in lists.
        permission: Permission that curators need in the admin.
        run: Acts on a row with the form's values, and returns a message. Raises ActionRefused or one of `refusals`.
        check: Returns why the selected rows are not suitable, before the form is shown; "" if they are.
        listed: Whether curators without the permission see the action.
        help: Help text of the command.
        report: Returns the command's output for the changed row and the values, if it differs from that of `run`.
        guards_command: Whether the command checks the permission as well.
        arguments: Command-line names of the form's fields, if they differ from the fields' names. A choice named ""
            has one flag for each value.
    """

    short_description: str
    permission: str
    run: Callable[[Any, Mapping[str, Any]], str]
    title: str = ""
    explanation: str = ""
    button: str = ""
    form: type[ReasonForm] = ReasonForm
    danger: bool = False
    listed: bool = False
    check: Callable[[QuerySet[Any]], str] | None = None
    refusals: tuple[type[Exception], ...] = ()
    help: str = ""
    report: Callable[[Any, Mapping[str, Any]], str] | None = None
    guards_command: bool = False
    arguments: Mapping[str, str] = field(default_factory=dict)
    do_not_call_in_templates = True

    def __call__(self, page: admin.ModelAdmin, request: HttpRequest, queryset: QuerySet[Any]) -> HttpResponse | None:
        """Show the form; after confirmation, act on all selected rows in one transaction and redirect to the list.

        Return None for Django's list if the selection is not suitable.
        """
        require(request, self.permission)
        if self.check is not None and (reason := self.check(queryset)):
            messages.error(request, reason)
            return None
        form = self.form(request.POST, request.FILES) if "confirmed" in request.POST else self.form()

        @transaction.atomic
        def act(values: Mapping[str, Any]) -> str:
            """Act on all rows, show their messages, and return the URL of the list."""
            if isinstance(page, CurationAdmin):
                # Lock all boards at once, so that locks are always acquired in the same order.
                keys = list(queryset.values_list("pk", flat=True))
                lock_boards(dataset for key in keys for dataset in page.get_board_ids(key))
            for sentence in [self.run(row, values) for row in queryset.order_by("pk")]:
                messages.success(request, sentence)
            return request.get_full_path()

        redirect, problems = submit(request, form, act, ActionRefused, *self.refusals)
        return redirect or curation_page(
            request, page, "admin/curation_ask.html", self.title,
            problems=problems, form=form, chosen=queryset, explanation=self.explanation, button=self.button,
            danger=self.danger, action=request.POST.get("action", ""), checkbox=ACTION_CHECKBOX_NAME,
        )  # fmt: skip
