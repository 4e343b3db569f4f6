"""Keeping an inspected collection: bytes first, then rows that name them."""

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from django.db.models import Max

from leaderboard.core.storage.store import Area, put
from leaderboard.datasets import files
from leaderboard.importing.collections.inspection import InspectedCollection
from leaderboard.importing.collections.source import CollectionFiles, ImportOptions, Progress
from leaderboard.models import Dataset, DatasetFile, DatasetVersion

Kind = DatasetFile.Kind


@dataclass(frozen=True, slots=True)
class StoredContent:
    """Files in the store, not yet named by rows. `judgements`, by split, are those that may be offered.

    `topics` is None where a run is to answer all queries, `answers` where they are hidden, `candidates` but for
    re-ranking.
    """

    queries: files.StoredFile
    topics: files.StoredFile | None
    corpus: files.StoredFile | None
    document_ids: files.StoredFile | None
    id_table_sha256: str
    judgements: dict[str, files.StoredFile]
    answers: files.StoredFile | None = None
    candidates: files.StoredFile | None = None
    excluded: files.StoredFile | None = None


def store_content(
    source: CollectionFiles,
    inspected: InspectedCollection,
    options: ImportOptions,
    work: Path,
    progress: Progress,
) -> StoredContent:
    """Compress what is plain and put it into the store, hidden judgements apart. No row is written."""
    if source.queries is None:
        raise ValueError("a collection that passed inspection has queries")
    progress("storing", 0.0)
    kept = {}
    for split, judged in inspected.judgements.items():
        if split == options.split:
            put(Area.QRELS, judged.path, judged.sha256)
        if files.may_offer_judgements(split, scored_split=options.split, hidden=bool(options.hidden)):
            kept[split] = files.store_judgements(judged.path, work)
    answers, excluded, topics = inspected.answers, inspected.excluded, inspected.topics.path
    if answers is not None:
        put(Area.QRELS, *answers)

    def stored(path: Path, name: str) -> files.StoredFile:
        return files.store_file(files.gzipped(path, work / name))

    id_table_sha256 = ""
    if inspected.id_table is not None:  # the first one's, because no two tables are alike
        versions = DatasetVersion.objects.filter(dataset__slug=options.slug)
        known = versions.filter(content_sha256=inspected.content_sha256).first()
        id_table_sha256 = known.document_ids_sha256 if known else put(Area.INDEXES, inspected.id_table)
    corpus = source.corpus if inspected.corpus is not None else None
    content = StoredContent(
        queries=stored(source.queries, "queries.gz"),
        topics=stored(topics, "topics.gz") if topics else None,
        corpus=files.store_file(files.in_blocks(corpus, work / "corpus.gz")) if corpus else None,
        document_ids=stored(inspected.id_list, "ids.gz") if inspected.id_list else None,
        id_table_sha256=id_table_sha256,
        judgements=kept,
        answers=stored(answers.path, "answers.gz") if answers and not options.hidden else None,
        excluded=stored(excluded.path, "excluded.gz") if excluded else None,
        candidates=_store_candidates(inspected, options.split, work) if options.candidates_only else None,
    )
    progress("storing", 1.0)
    return content


def _store_candidates(inspected: InspectedCollection, split: str, work: Path) -> files.StoredFile | None:
    """Return the judged documents of each query as a run, in an order that tells no grade."""
    if split not in inspected.judgements:
        return None
    judged = inspected.judgements[split]
    pairs = ((query, name) for query, name, _ in judged.qrels.judgements() if name not in judged.missing)
    ordered = sorted(pairs, key=lambda pair: (pair[0], sha256(" ".join(pair).encode()).digest()))
    lines = (
        f"{query} Q0 {name} {place} -{place} candidates\n" for place, (query, name) in enumerate(ordered, 1)
    )
    plain = work / "candidates.txt"
    plain.write_text("".join(lines), "utf-8")
    return files.store_file(files.gzipped(plain, work / "candidates.gz"))


def create_version(
    dataset: Dataset, inspected: InspectedCollection, stored: StoredContent, options: ImportOptions
) -> DatasetVersion:
    """Return the next version of the dataset."""
    latest = dataset.versions.aggregate(latest=Max("number"))["latest"] or 0
    return DatasetVersion.objects.create(
        dataset=dataset,
        number=latest + 1,
        label=options.version_label,
        content_sha256=inspected.content_sha256,
        corpus_sha256=stored.corpus.sha256 if stored.corpus else "",
        queries_sha256=stored.queries.sha256,
        topics_sha256=(stored.topics or stored.queries).sha256,
        document_ids_sha256=stored.id_table_sha256,
        excluded_sha256=stored.excluded.sha256 if stored.excluded else "",
        statistics=inspected.statistics(),
    )


def set_corpus(version: DatasetVersion, stored: StoredContent) -> None:
    """Have a version that was there before read its corpus, the same documents, from the file of this import.

    One that was stored before corpora were in blocks is in blocks then.
    """
    if stored.corpus is not None and version.corpus_sha256 != stored.corpus.sha256:
        version.corpus_sha256 = stored.corpus.sha256
        version.save(update_fields=["corpus_sha256"])


def set_topics(version: DatasetVersion, inspected: InspectedCollection, stored: StoredContent) -> bool:
    """Let runs for a version that was there before answer the topics of this import. True if they are others."""
    wanted = stored.topics.sha256 if stored.topics else version.queries_sha256
    if version.topics_sha256 == wanted:
        return False
    version.topics_sha256, version.statistics = wanted, inspected.statistics()
    version.save(update_fields=["topics_sha256", "statistics"])
    return True


def offer_content(
    version: DatasetVersion, stored: StoredContent, scored_split: str, *, with_scored: bool = True
) -> bool:
    """Offer the version's files, and the scored judgements only where they are open. True if an offer changed.

    `with_scored` is False where results are to be rescored first: the scored judgements come with the switch.
    Beside hidden judgements only those of this import are offered: others have not been held against them.
    """
    hidden = version.dataset.hidden
    before = set(version.files.values_list("name", "sha256"))
    files.offer_file(version, Kind.QUERIES, files.stored_file(version.topics_sha256), files.QUERIES_NAME)
    if version.topics_sha256 != version.queries_sha256:
        files.offer_file(
            version, Kind.ALL_QUERIES, files.stored_file(version.queries_sha256), files.ALL_QUERIES_NAME
        )
    else:
        files.withdraw_file(version, files.ALL_QUERIES_NAME)
    offered = {
        files.judgements_name(split): (split, kept)
        for split, kept in stored.judgements.items()
        if files.may_offer_judgements(split, scored_split=scored_split, hidden=hidden)
        and (with_scored or split != scored_split)
    }
    for file in version.files.filter(kind=Kind.QRELS) if hidden else ():
        if file.name not in offered:
            files.withdraw_file(version, file.name)
    for name, (split, kept) in offered.items():
        files.offer_file(version, Kind.QRELS, kept, name, f"The {split} judgements")
    for kind, further, name in (
        (Kind.CORPUS, stored.corpus, "corpus.jsonl.gz"),
        (Kind.DOCUMENT_IDS, stored.document_ids, "document-ids.txt.gz"),
        (Kind.EXCLUDED, stored.excluded, files.EXCLUDED_NAME),
        (Kind.CANDIDATES, stored.candidates, "candidates.txt.gz"),
        (Kind.QRELS, stored.answers, "answers.jsonl.gz"),
    ):
        if further is not None:
            files.offer_file(version, kind, further, name, "The answer strings" if kind == Kind.QRELS else "")
    return set(version.files.values_list("name", "sha256")) != before
