"""Admin of rolling benchmarks. `submissions.admin.renewals` adds the last renewal, and registers it."""

from typing import Any

from django import forms
from django.http import HttpRequest
from django.utils import timezone

from evaluation.core.problems import InvalidContent, at_lines
from leaderboard.admin.base import CurationAdmin
from leaderboard.admin.forms import CurationForm
from leaderboard.admin.import_form import uploaded_path
from leaderboard.admin.pages import Operation
from leaderboard.core.permissions import may_read_judgements
from leaderboard.importing.topics.batches import add_prepared, check_prepared
from leaderboard.importing.topics.renewal import RETRY_AFTER, add_batch, renewal_obstacle, request_renewal
from leaderboard.models import TopicSource


class TopicSourceForm(CurationForm):
    """Form of a rolling benchmark and a zip of prepared batches, whose problems are all shown at once."""

    prepared = forms.FileField(
        label="Prepared batches",
        required=False,
        help_text="Zip file with one folder per batch, such as batch-01 and batch-02, each with queries.jsonl "
        "and qrels.tsv. Batches are started in the order of their names, after all earlier ones.",
    )

    class Meta:
        model = TopicSource
        fields = (
            "name", "slug", "generator", "dataset", "batch_size", "interval_days", "hidden_batches", "next_at",
            "enabled",
        )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        """Return the values, and add errors for an unsuitable dataset and for all problems of prepared batches."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        dataset, archive = cleaned.get("dataset"), cleaned.get("prepared")
        if dataset is None and (archive or cleaned.get("generator") == TopicSource.Generator.FILES):
            self.add_error("dataset", "Choose the open dataset with the corpus of the prepared topics.")
        elif dataset and (dataset.hidden or not (dataset.current_version and dataset.current_version.corpus_sha256)):
            self.add_error("dataset", "Choose a dataset with documents and open judgments.")
        elif archive and not may_read_judgements(self.request.user):
            self.add_error(
                "prepared", "You may not read hidden judgments, so you cannot add batches. Ask a curator who may."
            )
        elif archive and dataset:
            try:
                check_prepared(uploaded_path(archive), self.instance, dataset.current_version)
            except InvalidContent as error:
                texts = [f"{item.sentences()}{at_lines(item.lines)}" for item in error.report.problems]
                self.add_error("prepared", texts)
        return cleaned


class TopicSourceAdmin(CurationAdmin):
    """Admin of rolling benchmarks. All times are in UTC."""

    form = TopicSourceForm
    list_display = ("name", "generator", "dataset", "interval_days", "next_at", "enabled", "last_renewal")
    readonly_fields = ("last_renewal",)
    list_select_related = ("dataset",)
    prepopulated_fields = {"slug": ("name",)}
    actions = ("renew_now",)
    may_delete = False
    fieldsets = (
        (None, {"fields": ("name", "slug", "generator", "dataset", "prepared")}),
        (
            "Schedule",
            {"fields": ("batch_size", "interval_days", "hidden_batches", "next_at", "enabled", "last_renewal")},
        ),
    )

    def operations(self) -> tuple[list[str], tuple[()]]:
        """Return a sentence for each scheduled renewal that is refused, or that no worker has completed for a day."""
        now, problems = timezone.now(), []
        for source in TopicSource.objects.filter(enabled=True, next_at__lt=now):
            if obstacle := renewal_obstacle(source):
                problems.append(f"The renewal of {source} waits: {obstacle}")
            elif source.next_at < now - RETRY_AFTER:
                problems.append(f"The renewal of {source} is overdue. See its last renewal and the dispatcher’s log.")
        return problems, ()

    def save_model(self, request: HttpRequest, obj: TopicSource, form: Any, change: bool) -> None:
        """Save the rolling benchmark, its first batch, and its prepared batches."""
        super().save_model(request, obj, form, change)
        if obj.dataset is not None:
            add_batch(obj, 1, obj.dataset)
        if archive := form.cleaned_data["prepared"]:
            add_prepared(uploaded_path(archive), obj)

    renew_now = Operation(
        "Renew now", "leaderboard.change_topicsource",
        lambda row, values: f"A worker will start batch {request_renewal(row)} of {row}.", title="Renew now",
        explanation="A worker starts the next batch and reveals the oldest hidden one. You cannot undo this. The "
        "schedule changes only if a renewal is due.",
        button="Renew", danger=True, refusals=(ValueError,), guards_command=True,
        help="Start the next batch and reveal the oldest hidden one.",
    )  # fmt: skip

    def acts(self, obj: TopicSource) -> tuple[str, ...]:
        return ("renew_now",)
