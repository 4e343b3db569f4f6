"""Checks of imports against judgements that are hidden: of other splits of the dataset, and of its twin.

Other splits may be offered beside hidden judgements unless they reveal those. An import without the scored split is
compared with the stored judgements. That tells which pairs these judge, so it is for people who may read them, and
recorded.

Twins are two datasets over one corpus, with an open and a hidden half of the topics of one kind. An import that names
its twin (`ImportOptions.twin_of`) must fulfil `check_twin`; `halves` draws both from one collection.
"""

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import pairwise
from pathlib import Path

from evaluation.collections.beir import read_queries
from evaluation.core.problems import InvalidContent, Problem
from evaluation.judgements import qrels as judged_qrels
from leaderboard.core.audit import actor
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.files import may_offer_judgements
from leaderboard.datasets.problems import name_some, problem
from leaderboard.datasets.qrels import load_open_qrels
from leaderboard.importing.collections.inspection import InspectedCollection
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.disclosure import load_compared, may_see_counts, record_compared
from leaderboard.models import Dataset, Qrels

#: Judged topics of each half, at the least: a bootstrap over fewer says nothing.
LEAST_TOPICS = 10
#: Identical for all files and any number of hidden datasets, and raised before judgments are read.
TOPICS_NOT_COMPARED = problem(
    "judgements_not_told",
    "a twin's topics must be compared with hidden judgments over the same corpus, which you may not read",
    "Ask a curator who may read hidden judgments to import the twin (on the command line: --by EMAIL).",
)


def too_few(half: str, topics: int) -> Problem:
    """Return a half without the topics that a gap takes."""
    return problem(
        "twin_too_small",
        f"the {half} half has {topics} judged topics",
        f"Each half needs {LEAST_TOPICS} at least, and some 300 to show a gap: see docs/contamination.md.",
        count=topics,
    )


def check_twin(
    inspected: InspectedCollection, queries: Path, options: ImportOptions, dataset: Dataset | None
) -> Iterator[Problem]:
    """What keeps this collection from being the hidden half of the dataset that it names, now or before.

    `queries` is the collection's file. Of hidden judgements only their topics are read.
    """
    linked = dataset.twin_of if dataset is not None else None
    slug = options.twin_of or (linked.slug if linked else None)
    if slug is None:
        return
    twins = Dataset.objects.select_related("current_version", "current_qrels")
    twin = twins.filter(slug=slug, hidden=False).exclude(current_qrels=None).first()
    if twin is None:
        hint = "Import the open half first; its slug is what --twin-of takes."
        yield problem("no_twin", f"{slug} is no dataset with open judgements", hint)
        return
    if options.twin_of and not options.hidden:
        yield problem("twin_open", "the half that names its twin is the hidden one", "Leave out --open.")
    if (taken := twin.twins.exclude(slug=options.slug).first()) is not None:
        yield problem(
            "twin_taken", f"{slug} has a hidden half already: {taken.slug}", "Import that one again."
        )
    measure = options.primary or (dataset.primary_measure if dataset else "nDCG@10")
    if measure != twin.primary_measure:
        hint = f"Say --primary {twin.primary_measure}: a gap takes one measure."
        yield problem("twin_measure", f"{slug} has the primary measure {twin.primary_measure}", hint)
    yield from _check_content(inspected, queries, options, twin)


def _check_content(
    inspected: InspectedCollection, queries: Path, options: ImportOptions, twin: Dataset
) -> Iterator[Problem]:
    if twin.current_version is None or twin.current_qrels is None:
        raise ValueError("a judged dataset has a version")
    known = twin.current_version.statistics.get("corpus_expanded_sha256")
    if known != (inspected.corpus.sha256 if inspected.corpus else None):
        hint = "Import both halves from the same corpus.jsonl; only topics and judgements may differ."
        yield problem("twin_corpus", f"{twin.slug} has another corpus", hint)
    judged = inspected.judgements.get(options.split)
    if judged is None:
        return  # there are no topics to compare yet
    opened = load_open_qrels(twin.current_qrels).query_ids
    for half, topics in (("open", opened), ("hidden", judged.qrels.query_ids)):
        if len(topics) < LEAST_TOPICS:
            yield too_few(half, len(topics))
    texts = _texts(path_of(Area.FILES, twin.current_version.queries_sha256), opened)
    words = set(texts.values()) - {""}
    others = _texts(queries, judged.qrels.query_ids)
    shared = [each for each, text in others.items() if each in texts or text in words]
    if shared:
        counted = "1 topic is" if len(shared) == 1 else f"{len(shared):,} topics are"
        yield problem(
            "twin_topics",
            f"{counted} judged in {twin.slug}, too: {name_some(shared)}",
            "Take their judgements out of one half; the same words count as the same topic.",
            count=len(shared),
        )
    yield from check_opened_topics(known, opened, twin.slug, options.slug)


def check_opened_topics(
    corpus: str | None, opened: Collection[str], open_half: str, hidden_half: str
) -> Iterator[Problem]:
    """Report hidden datasets over the same corpus with judged topics among the `opened` ones of the open half.

    `corpus` is the checksum of the expanded file; the halves are given as slugs. Each comparison is recorded.
    Raises InvalidContent with TOPICS_NOT_COMPARED if the acting person may not read hidden judgements.
    """
    hidden = Dataset.objects.filter(hidden=True, current_version__statistics__corpus_expanded_sha256=corpus)
    rows = Qrels.objects.filter(pk__in=hidden.exclude(slug=hidden_half).values("current_qrels"))
    for row in rows.select_related("version__dataset").order_by("version__dataset__slug"):
        judged = load_compared(f"a twin of {open_half}", row, TOPICS_NOT_COMPARED).query_ids
        if shared := len(set(judged) & set(opened)):
            yield problem(
                "twin_opens",
                f"{open_half} would open judged topics that are hidden in {row.version.dataset.slug}: {shared:,}",
                "Draw one twin of a collection, and import its halves again to bring them up to date.",
                count=shared,
            )


def _texts(queries: Path, wanted: Collection[str]) -> dict[str, str]:
    """Return the words of the wanted queries, by id, whatever their case and spacing."""
    ids = set(wanted)
    return {
        query.id: " ".join(query.text.casefold().split())
        for query in read_queries(queries)
        if query.id in ids
    }


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
    kept = dataset.current_qrels or Qrels.objects.filter(version__dataset=dataset).order_by("pk").last()
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


def shared_pairs(first: judged_qrels.Qrels, second: judged_qrels.Qrels) -> int:
    """How many (query, document) pairs both judge, whatever their grades."""
    if set(first.query_ids).isdisjoint(second.query_ids):
        return 0
    # Both are in the order of their bytes, and have no pair twice: what both have comes out side by side.
    return sum(one == other for one, other in pairwise(merge(_pairs(first), _pairs(second))))


def _pairs(qrels: judged_qrels.Qrels) -> Iterator[tuple[str, str]]:
    return ((query, document) for query, document, _ in qrels.judgements())


def withheld_splits(inspected: InspectedCollection, options: ImportOptions) -> tuple[str, ...]:
    """Return the other splits whose judgements are not offered, since the scored ones are hidden."""
    return tuple(
        split
        for split in inspected.judgements
        if split != options.split
        and not may_offer_judgements(split, scored_split=options.split, hidden=bool(options.hidden))
    )
