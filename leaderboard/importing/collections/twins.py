"""Checks of imports against hidden judgments of other splits and of a twin.

Other splits may be public unless they overlap with the hidden judgments. An import without the scored split
is compared with the stored judgments. The result reveals judged pairs, so this requires the permission to read them,
and is recorded.

Twins are two datasets over one corpus, with an open and a hidden half of the same kind of topics. An import that names
its twin (`ImportOptions.twin_of`) must pass `check_twin`; `halves` draws both from one collection.
"""

from collections.abc import Collection, Iterator
from heapq import merge
from itertools import pairwise
from pathlib import Path

from evaluation.collections.beir import read_queries
from evaluation.core.problems import InvalidContent, Problem, format_count
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

#: Minimum number of judged topics per half; a bootstrap over fewer is meaningless.
MIN_TOPICS = 10
#: Problem that is identical for all files and raised before judgments are read, so that it reveals nothing.
TOPICS_NOT_COMPARED = problem(
    "judgements_not_told",
    "a twin's topics must be compared with hidden judgments over the same corpus, which you may not read",
    "Ask a curator who may read hidden judgments to import the twin (on the command line: --by EMAIL).",
)


def too_few(half: str, topics: int) -> Problem:
    """Return a problem about a half with too few topics to measure a gap."""
    return problem(
        "twin_too_small",
        f"the {half} half has {format_count(topics, 'judged topic')}",
        f"Each half needs at least {MIN_TOPICS}, and about 300 to show a gap. See docs/contamination.md.",
        count=topics,
    )


def check_twin(
    collection: InspectedCollection, queries: Path, options: ImportOptions, dataset: Dataset | None
) -> Iterator[Problem]:
    """Yield problems that prevent this collection from being the hidden half of its declared or existing twin.

    Without a twin there are none. `queries` is the collection's query file. Only the topics of hidden judgments are
    read.
    """
    linked_twin = dataset.twin_of if dataset is not None else None
    slug = options.twin_of or (linked_twin.slug if linked_twin else None)
    if slug is None:
        return
    twins = Dataset.objects.select_related("current_version", "current_qrels")
    twin = twins.filter(slug=slug, hidden=False).exclude(current_qrels=None).first()
    if twin is None:
        hint = "Import the open half first, and use its slug for --twin-of."
        yield problem("no_twin", f"{slug} is not a dataset with open judgments", hint)
        return
    if options.twin_of and not options.hidden:
        yield problem("twin_open", "--twin-of is for the hidden half of a twin", "Omit --open.")
    if (other_half := twin.twins.exclude(slug=options.slug).first()) is not None:
        yield problem(
            "twin_taken", f"{twin.name} already has a hidden half: {other_half.name}", "Import that one again."
        )
    measure = options.primary or (dataset.primary_measure if dataset else "nDCG@10")
    if measure != twin.primary_measure:
        hint = f"Use --primary {twin.primary_measure}: a gap requires the same measure in both halves."
        yield problem("twin_measure", f"{twin.name} has the primary measure {twin.primary_measure}", hint)
    yield from _check_content(collection, queries, options, twin)


def _check_content(
    collection: InspectedCollection, queries: Path, options: ImportOptions, twin: Dataset
) -> Iterator[Problem]:
    """Yield problems if the halves have different corpora, too few topics, or topics in common by id or text.

    Also yields those of `check_opened_topics`.
    """
    if twin.current_version is None or twin.current_qrels is None:
        raise ValueError("a judged dataset has a version")
    corpus_sha256 = twin.current_version.statistics.get("corpus_expanded_sha256")
    if corpus_sha256 != (collection.corpus.sha256 if collection.corpus else None):
        hint = "Import both halves from the same corpus.jsonl; only topics and judgments may differ."
        yield problem("twin_corpus", f"{twin.name} has another corpus", hint)
    judgements = collection.judgements.get(options.split)
    if judgements is None:
        return  # no topics to compare yet
    open_topics = load_open_qrels(twin.current_qrels).query_ids
    for half, topics in (("open", open_topics), ("hidden", judgements.qrels.query_ids)):
        if len(topics) < MIN_TOPICS:
            yield too_few(half, len(topics))
    texts = _normalized_texts(path_of(Area.FILES, twin.current_version.queries_sha256), open_topics)
    words = set(texts.values()) - {""}
    hidden_texts = _normalized_texts(queries, judgements.qrels.query_ids)
    if shared_topics := [topic for topic, text in hidden_texts.items() if topic in texts or text in words]:
        count_text = "1 topic is" if len(shared_topics) == 1 else f"{len(shared_topics):,} topics are"
        yield problem(
            "twin_topics",
            f"{count_text} judged in {twin.name}, too: {name_some(shared_topics)}",
            "Remove their judgments from one half. Topics with the same words count as the same.",
            count=len(shared_topics),
        )
    yield from check_opened_topics(corpus_sha256, open_topics, twin.slug, options.slug)


def check_opened_topics(
    corpus: str | None, open_topics: Collection[str], open_half: str, hidden_half: str
) -> Iterator[Problem]:
    """Yield problems for other hidden datasets over the same corpus whose judged topics the open half would reveal.

    `corpus` is the checksum of the uncompressed file, `open_topics` are the topics of the open half, and the halves are
    slugs. Each comparison is recorded. Raises InvalidContent with TOPICS_NOT_COMPARED without the permission to read
    hidden judgments.
    """
    hidden_datasets = Dataset.objects.filter(hidden=True, current_version__statistics__corpus_expanded_sha256=corpus)
    rows = Qrels.objects.filter(pk__in=hidden_datasets.exclude(slug=hidden_half).values("current_qrels"))
    for row in rows.select_related("version__dataset").order_by("version__dataset__slug"):
        judged_topics = load_compared(f"a twin of {open_half}", row, TOPICS_NOT_COMPARED).query_ids
        if shared_count := len(set(judged_topics) & set(open_topics)):
            yield problem(
                "twin_opens",
                f"{open_half} would open judged topics that are hidden in {row.version.dataset.name}: {shared_count:,}",
                "Draw only one twin of a collection, and import its halves again to update them.",
                count=shared_count,
            )


def _normalized_texts(queries: Path, query_ids: Collection[str]) -> dict[str, str]:
    """Return the normalized texts of the wanted queries by id."""
    ids = set(query_ids)
    return {query.id: " ".join(query.text.casefold().split()) for query in read_queries(queries) if query.id in ids}


#: Problem that is identical for all files and raised before any is read.
NOT_COMPARED = problem(
    "judgements_not_told",
    "this import requires a comparison with hidden judgments, which you may not read",
    "Include the scored split, omit the other splits, or ask a curator who may read hidden judgments (on the "
    "command line: --by EMAIL).",
)


def permit_comparison(splits: Collection[str], options: ImportOptions, dataset: Dataset | None) -> None:
    """Check that the acting user may have these splits compared with the dataset's hidden judgments.

    Call this before any file is read, within `audit.acting`. An import of the scored split is recorded as a comparison,
    because its outcome reveals whether the file is the same. Raises InvalidContent with NOT_COMPARED for other splits
    alone without the permission.
    """
    if dataset is None or not splits or not (dataset.hidden and options.hidden):
        return
    stored_qrels = dataset.current_qrels or Qrels.objects.filter(version__dataset=dataset).order_by("pk").last()
    if stored_qrels is None:
        return
    if options.split in splits:
        record_compared(f"an import onto {dataset}", dataset, stored_qrels)
    elif not may_see_counts(dataset, actor().person):
        raise InvalidContent.build(NOT_COMPARED)


def check_overlap(content: InspectedCollection, options: ImportOptions, dataset: Dataset | None) -> Iterator[Problem]:
    """Yield problems for other splits that contain hidden judgments, those of this import or otherwise the stored ones.

    Raises InvalidContent with NOT_COMPARED if the acting user may not read the stored ones.
    """
    if not options.hidden or not content.judgements.keys() - {options.split}:
        return
    if options.split in content.judgements:
        scored_qrels = content.judgements[options.split].qrels
    elif dataset is not None and dataset.current_qrels is not None:
        scored_qrels = load_compared(f"an import onto {dataset}", dataset.current_qrels, NOT_COMPARED)
    else:
        return
    for split, judgements in content.judgements.items():
        shared_count = shared_pairs(scored_qrels, judgements.qrels) if split != options.split else 0
        if shared_count:
            yield problem(
                "split_overlaps",
                f"{split} qrels: {shared_count:,} of the hidden {options.split} judgments "
                f"{'is' if shared_count == 1 else 'are'} also in it (the same query and document)",
                f"Omit qrels/{split}.tsv or those lines, or use --open, which makes all judgments public.",
                count=shared_count,
            )


def shared_pairs(first: judged_qrels.Qrels, second: judged_qrels.Qrels) -> int:
    """Return the number of (query, document) pairs that both judge, regardless of grades."""
    if set(first.query_ids).isdisjoint(second.query_ids):
        return 0
    # Both are sorted by their bytes without duplicates, so a merge places shared pairs next to each other.
    return sum(pair == next_pair for pair, next_pair in pairwise(merge(_judged_pairs(first), _judged_pairs(second))))


def _judged_pairs(qrels: judged_qrels.Qrels) -> Iterator[tuple[str, str]]:
    return ((query, document) for query, document, _ in qrels.judgements())


def withheld_splits(collection: InspectedCollection, options: ImportOptions) -> tuple[str, ...]:
    """Return the other splits whose judgments are withheld because the scored ones are hidden."""
    return tuple(
        split
        for split in collection.judgements
        if split != options.split
        and not may_offer_judgements(split, scored_split=options.split, hidden=bool(options.hidden))
    )
