"""Public information on rescores: only those to which a board was switched, numbered in order."""

from collections.abc import Iterable

from django.db.models import F, QuerySet
from django.urls import reverse

from leaderboard.models import BoardChange, Qrels, Rescore

State = Rescore.State


def switched_rescores(dataset_id: int) -> QuerySet[Rescore]:
    """Return the dataset's completed rescores in order; the n-th has the number n."""
    rescores = Rescore.objects.filter(dataset=dataset_id, state=State.SWITCHED)
    return rescores.select_related("dataset", "from_qrels", "to_qrels").order_by("decided_at", "pk")


def rescore_pages(dataset_id: int, slug: str) -> dict[int, str]:
    """Return the URL of the latest rescore page for each qrels, by key, in one query."""
    keys = switched_rescores(dataset_id).values_list("to_qrels", flat=True)
    return {key: reverse("rescore", args=[slug, number]) for number, key in enumerate(keys, start=1)}


def rescore_page(rescore: Rescore) -> str:
    """Return the URL of the rescore's page, or of the dataset if the board was not switched to it."""
    dataset = rescore.dataset
    for number, key in enumerate(switched_rescores(dataset.pk).values_list("pk", flat=True), start=1):
        if key == rescore.pk:
            return reverse("rescore", args=[dataset.slug, number])
    return dataset.get_absolute_url()


def unpublished_judgements(dataset_id: int) -> QuerySet[Qrels]:
    """Return judgments that were prepared by rescores, but never used by the dataset's board.

    They must stay undisclosed.
    """
    other_rescores = Rescore.objects.filter(dataset=dataset_id).exclude(state=State.SWITCHED)
    completed_rescores = Rescore.objects.filter(dataset=dataset_id, state=State.SWITCHED)
    return (
        Qrels.objects.filter(pk__in=other_rescores.values("to_qrels"))
        .exclude(pk__in=completed_rescores.values("to_qrels"))
        .exclude(pk__in=Rescore.objects.filter(dataset=dataset_id).values("from_qrels"))
        .exclude(pk=F("version__dataset__current_qrels"))
    )


def rescore_news(changes: Iterable[BoardChange]) -> dict[int, str]:
    """Return the news texts of board switches by change key, in one query. Other changes are omitted."""
    changes = list(changes)
    if not changes:
        return {}
    rescores = Rescore.objects.filter(dataset__in={item.dataset_id for item in changes}, state=State.SWITCHED)
    by_qrels: dict[tuple[int, int], list[Rescore]] = {}
    for rescore in rescores.select_related("to_qrels").order_by("decided_at"):
        by_qrels.setdefault((rescore.dataset_id, rescore.to_qrels_id), []).append(rescore)
    texts = {}
    for change in changes:
        candidates = by_qrels.get((change.dataset_id, change.facts["current_qrels_id"]), [])
        later_rescores = [item for item in candidates if item.decided_at is not None and item.decided_at >= change.at]
        if later_rescores:
            reason = f": {later_rescores[0].reason}" if later_rescores[0].reason else ""
            texts[change.pk] = f"on qrels v{later_rescores[0].to_qrels.number}{reason}"
    return texts
