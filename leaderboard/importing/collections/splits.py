"""What may be offered beside hidden judgements: other splits, and none that gives those away.

An import without the scored split is compared with the judgements that are kept. That tells which pairs these judge, so
it is for those who may read them, and recorded.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import pairwise

from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from evaluation.judgements.qrels import Qrels
from leaderboard.core.audit import actor
from leaderboard.datasets.files import may_offer_judgements
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.inspection import InspectedCollection
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.judgements.disclosure import load_compared, may_see_counts, record_compared
from leaderboard.models import Dataset
from leaderboard.models import Qrels as QrelsRow

#: The same for every file, and said before any is read.
NOT_COMPARED = problem(
    "judgements_not_told",
    "the hidden judgements of this dataset are compared only for people who may read them",
    "Bring the scored split too, leave out the other splits, or ask somebody who may read hidden judgements (on the "
    "command line: --by EMAIL).",
)


def permit_comparison(brought: Collection[str], options: ImportOptions, dataset: Dataset | None) -> None:
    """Refuse splits that the acting person may not have compared with the dataset's hidden judgements.

    Call it before any file is read, within `audit.acting`. An import of the scored split is recorded as a comparison,
    because its answer reveals whether the file is the same. Raises InvalidContent with NOT_COMPARED.
    """
    if dataset is None or not brought or not (dataset.hidden and options.hidden):
        return
    kept = dataset.current_qrels or QrelsRow.objects.filter(version__dataset=dataset).order_by("pk").last()
    if kept is None:
        return
    if options.split in brought:
        record_compared(f"an import onto {dataset}", dataset, kept)
    elif not may_see_counts(dataset, actor().person):
        raise InvalidContent.of(NOT_COMPARED)


def check_overlap(
    inspected: InspectedCollection, options: ImportOptions, dataset: Dataset | None
) -> Iterator[Problem]:
    """Report other splits with judgments that must stay hidden, compared with the stored ones if the import has none.

    Raises InvalidContent with NOT_COMPARED if the acting person may not read the stored ones.
    """
    if not options.hidden or not inspected.judgements.keys() - {options.split}:
        return
    if options.split in inspected.judgements:
        scored = inspected.judgements[options.split].qrels
    elif dataset is not None and dataset.current_qrels is not None:
        scored = load_compared(f"an import onto {dataset}", dataset.current_qrels, NOT_COMPARED)
    else:
        return
    for split, judged in inspected.judgements.items():
        shared = shared_pairs(scored, judged.qrels) if split != options.split else 0
        if shared:
            yield problem(
                "split_overlaps",
                f"{split} qrels: {shared:,} of the hidden {options.split} judgements "
                f"{'is' if shared == 1 else 'are'} there too (the same query and document)",
                f"Leave qrels/{split}.tsv out, or those lines of it; or say --open, which offers all judgements.",
                count=shared,
            )


def shared_pairs(first: Qrels, second: Qrels) -> int:
    """How many (query, document) pairs both judge, whatever their grades."""
    if set(first.query_ids).isdisjoint(second.query_ids):
        return 0
    # Both are in the order of their bytes, and have no pair twice: what both have comes out side by side.
    return sum(one == other for one, other in pairwise(merge(_pairs(first), _pairs(second))))


def _pairs(qrels: Qrels) -> Iterator[tuple[str, str]]:
    return ((query, document) for query, document, _ in qrels.judgements())


def withheld_splits(inspected: InspectedCollection, options: ImportOptions) -> tuple[str, ...]:
    """The other splits whose judgements are not offered, since the scored ones are hidden."""
    return tuple(
        split
        for split in inspected.judgements
        if split != options.split
        and not may_offer_judgements(split, scored=options.split, hidden=bool(options.hidden))
    )
