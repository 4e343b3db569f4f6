"""What the pages of pools and of judgements that come back have in common."""

from __future__ import annotations

from typing import Any

from django import forms
from django.core.exceptions import PermissionDenied
from django.db.models import QuerySet
from django.http import Http404, HttpRequest

from leaderboard.admin.base import ReadOnlyAdmin
from leaderboard.admin.pages import ReasonForm
from leaderboard.core.permissions import READS_JUDGEMENTS
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Dataset

JUDGE, READ = "leaderboard.judge_dataset", READS_JUDGEMENTS
#: Seconds after which a page looks again while the scorer works.
REFRESH = 4


class JudgingAdmin(ReadOnlyAdmin):
    """Pages for those who may judge datasets, and nobody else."""

    def has_module_permission(self, request: HttpRequest) -> bool:
        """Whoever may judge."""
        return bool(request.user.has_perm(JUDGE))

    def has_view_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Whoever may judge."""
        return bool(request.user.has_perm(JUDGE))

    def get_row(self, request: HttpRequest, object_id: str | int) -> Any:
        """The row that a page is about. Raises PermissionDenied, and Http404 where there is none."""
        if not self.has_view_permission(request):
            raise PermissionDenied
        row = self.get_queryset(request).filter(pk=parse_number(str(object_id))).first()
        if row is None:
            raise Http404
        return row


class DatasetForm(ReasonForm):
    """A form about one dataset, which a link may have chosen already."""

    dataset = forms.ModelChoiceField(queryset=Dataset.objects.none(), to_field_name="slug")

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fields["dataset"].queryset = self.datasets()  # type: ignore[attr-defined]

    @staticmethod
    def datasets() -> QuerySet[Dataset]:
        """Those that have queries here: others cannot be judged."""
        return Dataset.objects.filter(current_version__isnull=False).order_by("name")


def chosen_dataset(request: HttpRequest) -> Dataset | None:
    """The dataset that an address or a form names."""
    slug = request.POST.get("dataset") or request.GET.get("dataset")
    chosen = DatasetForm.datasets().filter(slug=slug) if slug else DatasetForm.datasets().none()
    return chosen.select_related("current_qrels", "current_version").first()
