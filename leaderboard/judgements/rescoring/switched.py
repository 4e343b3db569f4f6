"""What everyone may know of rescores: those that a board was switched to, by their number, and nothing of others."""

from collections.abc import Iterable

from django.db.models import F, QuerySet
from django.urls import reverse

from leaderboard.models import BoardChange, Qrels, Rescore

State = Rescore.State


def switched_rescores(dataset_id: int) -> QuerySet[Rescore]:
    """Return the dataset's rescores that were switched to, in that order: the n-th has the number n."""
    rescores = Rescore.objects.filter(dataset=dataset_id, state=State.SWITCHED)
    return rescores.select_related("dataset", "from_qrels", "to_qrels").order_by("decided_at", "pk")


def pages_of(dataset_id: int, slug: str) -> dict[int, str]:
    """By the key of judgements, the page on what changed when the board came to stand on them last. One query."""
    keys = switched_rescores(dataset_id).values_list("to_qrels", flat=True)
    return {key: reverse("rescore", args=[slug, number]) for number, key in enumerate(keys, start=1)}


def page_of(rescore: Rescore) -> str:
    """Return the page on what this rescore changed; the dataset's where it was not switched to. One query."""
    dataset = rescore.dataset
    for number, key in enumerate(switched_rescores(dataset.pk).values_list("pk", flat=True), start=1):
        if key == rescore.pk:
            return reverse("rescore", args=[dataset.slug, number])
    return dataset.get_absolute_url()


def unpublished_judgements(dataset_id: int) -> QuerySet[Qrels]:
    """Judgements that no board of the dataset has stood on yet: nobody is told that they are there."""
    prepared = Rescore.objects.filter(dataset=dataset_id).exclude(state=State.SWITCHED)
    known = Rescore.objects.filter(dataset=dataset_id, state=State.SWITCHED)
    return (
        Qrels.objects.filter(pk__in=prepared.values("to_qrels"))
        .exclude(pk__in=known.values("to_qrels"))
        .exclude(pk__in=Rescore.objects.filter(dataset=dataset_id).values("from_qrels"))
        .exclude(pk=F("version__dataset__current_qrels"))
    )


def news_of(changes: Iterable[BoardChange]) -> dict[int, str]:
    """Return the news of boards that were switched, by the keys of the changes. One query."""
    changes = list(changes)
    if not changes:
        return {}
    rescores = Rescore.objects.filter(dataset__in={each.dataset_id for each in changes}, state=State.SWITCHED)
    by_qrels: dict[tuple[int, int], list[Rescore]] = {}
    for rescore in rescores.select_related("to_qrels").order_by("decided_at"):
        by_qrels.setdefault((rescore.dataset_id, rescore.to_qrels_id), []).append(rescore)
    told = {}
    for change in changes:
        found = by_qrels.get((change.dataset_id, change.facts["current_qrels_id"]), [])
        after = [each for each in found if each.decided_at is not None and each.decided_at >= change.at]
        if after:
            why = f": {after[0].reason}" if after[0].reason else ""
            told[change.pk] = f"on qrels v{after[0].to_qrels.number}{why}"
    return told
