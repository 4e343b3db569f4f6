"""What changed on a board when it came to stand on other judgements, for everyone."""

from __future__ import annotations

from typing import Any

from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from leaderboard.core.http.query_parameters import reads
from leaderboard.core.measures import canonical_name
from leaderboard.judgements.rescoring.comparison import restrict_comparison
from leaderboard.judgements.rescoring.switched import switched_rescores
from leaderboard.judgements.rescoring.table import as_csv, comparison_table, unmoved_results
from leaderboard.models import Dataset, Entry, Rescore


@require_safe
@reads("measure", "sort")
def rescore(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """Each public result before and after."""
    row, comparison = _switched_rescore(slug, number)
    dataset = row.dataset
    table = comparison_table(
        comparison,
        measure=canonical_name(request.GET.get("measure", "")),
        sort=request.GET.get("sort", ""),
        hidden=dataset.hidden,
        public=True,
    )
    context = {
        "section": "datasets", "dataset": dataset, "rescore": row, "number": number, "table": table,
        "stays": unmoved_results(comparison, public=True), "quarantined": _quarantined(row),
    }  # fmt: skip
    return render(request, "leaderboard/rescore.html", context)


@require_safe
def rescore_csv(request: HttpRequest, slug: str, number: int) -> HttpResponse:
    """The same for a spreadsheet, by every measure."""
    row, comparison = _switched_rescore(slug, number)
    text = as_csv(comparison, hidden=row.dataset.hidden, public=True)
    name = f"{slug}-rescore-{number}.csv"
    return HttpResponse(
        text,
        content_type="text/csv; charset=utf-8",
        headers={"Content-Disposition": f'attachment; filename="{name}"'},
    )


def _switched_rescore(slug: str, number: int) -> tuple[Rescore, dict[str, Any]]:
    """The n-th switch of a dataset, with what may be shown of it now: what was taken off since is left out."""
    dataset = get_object_or_404(Dataset.objects.listed(), slug=slug)
    rescores = list(switched_rescores(dataset.pk))
    if not 1 <= number <= len(rescores):
        raise Http404
    row = rescores[number - 1]
    public = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.PUBLIC)
    return row, restrict_comparison(row.comparison, set(public.values_list("pk", flat=True)))


def _quarantined(rescore: Rescore) -> list[dict[str, str]]:
    """What moved and is under quarantine now: its reason is public."""
    moved = [
        row["entry"] for row in rescore.comparison["rows"] if row["visibility"] == Entry.Visibility.PUBLIC
    ]
    under = Entry.objects.filter(pk__in=moved, visibility=Entry.Visibility.QUARANTINED)
    columns = under.order_by("system__name", "pk").values(
        "system__slug", "system__name", "configuration", "moderation_reason"
    )
    return [{name.replace("system__", ""): str(value) for name, value in row.items()} for row in columns]
