"""Admin of rounds."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.core.exceptions import ValidationError
from django.db.models import QuerySet
from django.forms.models import construct_instance
from django.http import HttpRequest
from django.utils import timezone

from leaderboard.admin.base import CurationAdmin
from leaderboard.admin.forms import CurationForm
from leaderboard.admin.pages import Operation
from leaderboard.models import Round
from leaderboard.rounds import lifecycle
from leaderboard.rounds.lifecycle import describe_round, quota_warning


class RoundForm(CurationForm):
    """Form that validates a round: order of times, a single subject, and no overlap with another round."""

    class Meta:
        model = Round
        fields = (
            "name", "slug", "description", "dataset", "benchmark", "opens_at", "closes_at", "reveals_at",
            "runs_per_team", "visible_per_team", "takes_late", "per_topic_at_reveal",
        )  # fmt: skip

    def clean(self) -> dict[str, Any]:
        """Return the values, and add an error if the round breaks a rule of `lifecycle.check_round`."""
        cleaned: dict[str, Any] = super().clean() or self.cleaned_data
        if not self.errors:
            try:
                lifecycle.check_round(construct_instance(self, Round(pk=self.instance.pk), self._meta.fields))
            except ValidationError as error:
                self.add_error(None, error)
        return cleaned


@admin.register(Round)
class RoundAdmin(CurationAdmin):
    """Admin of rounds. All times are in UTC."""

    form = RoundForm
    list_display = ("name", "phase", "of", "opens_at", "closes_at", "reveals_at", "runs_per_team")
    list_filter = (("dataset", admin.RelatedOnlyFieldListFilter), "benchmark")
    list_select_related = ("dataset", "benchmark")
    search_fields = ("name", "slug", "dataset__name", "dataset__slug", "benchmark__name")
    date_hierarchy = "opens_at"
    prepopulated_fields = {"slug": ("name",)}
    actions = ("reveal_round",)
    fieldsets = (
        (None, {"fields": ("name", "slug", "description", "dataset", "benchmark")}),
        ("Times (UTC)", {"fields": ("opens_at", "closes_at", "reveals_at")}),
        ("Rules", {"fields": ("runs_per_team", "visible_per_team", "takes_late", "per_topic_at_reveal")}),
    )

    pending = ("round can be revealed", "rounds can be revealed", "")
    pending_since = "reveals_at"

    def pending_rows(self) -> QuerySet[Round]:
        return Round.objects.filter(revealed_at=None, reveals_at__lte=timezone.now())

    @admin.display(description="phase")
    def phase(self, row: Round) -> str:
        description = describe_round(row, timezone.now())
        return f"{description.label}: {description.next}"

    @admin.display(description="of")
    def of(self, row: Round) -> str:
        return str(row.dataset or row.benchmark)

    def get_board_ids(self, key: Any) -> Iterable[int]:
        """Return the ids of the round's datasets, whose boards limit the number of results per team."""
        return (dataset.pk for row in Round.objects.filter(pk=key) for dataset in lifecycle.round_datasets(row))

    def acts(self, obj: Round) -> Iterable[str]:
        return () if obj.revealed_at else ("reveal_round",)

    def save_model(self, request: HttpRequest, obj: Round, form: Any, change: bool) -> None:
        """Save the round, update its boards if `visible_per_team` changed, and warn about lower quotas."""
        super().save_model(request, obj, form, change)
        if change and "visible_per_team" in form.changed_data:
            lifecycle.refresh_round_boards(obj)
        if warning := quota_warning(obj):
            messages.warning(request, warning)

    def has_change_permission(self, request: HttpRequest, obj: Round | None = None) -> bool:
        """Forbid changes to revealed rounds."""
        is_revealed = obj is not None and obj.revealed_at is not None
        return not is_revealed and super().has_change_permission(request, obj)

    def has_delete_permission(self, request: HttpRequest, obj: Round | None = None) -> bool:
        """Forbid deleting rounds that have runs."""
        has_runs = obj is not None and (obj.runs.exists() or obj.entries.exists())
        return not has_runs and super().has_delete_permission(request, obj)

    reveal_round = Operation(
        "Reveal the results", "leaderboard.reveal_dataset",
        lambda row, values: f"{lifecycle.reveal(row)} is revealed.", title="Reveal results",
        explanation="The round ends permanently: teams get their scores per topic if the round provides them, runs "
        "that contributed to a pool are marked, and competition boards show the private part. You cannot undo this.",
        button="Reveal", danger=True, refusals=(lifecycle.RevealTooEarly,),
    )  # fmt: skip
