"""Storage of an inspected collection: first the files, then the rows that refer to them."""

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
    """Stored files that no row references yet; `judgements` are the public ones by split. `tags` is not stored.

    `topics` is None if all queries are topics, `answers` and `subtopics` with hidden judgments, and `candidates` except
    for re-ranking.
    """

    queries: files.StoredFile
    topics: files.StoredFile | None
    corpus: files.StoredFile | None
    document_ids: files.StoredFile | None
    id_table_sha256: str
    judgements: dict[str, files.StoredFile]
    answers: files.StoredFile | None = None
    subtopics: files.StoredFile | None = None
    candidates: files.StoredFile | None = None
    excluded: files.StoredFile | None = None
    tags: Path | None = None


def store_content(
    source: CollectionFiles,
    collection: InspectedCollection,
    options: ImportOptions,
    work: Path,
    progress: Progress,
) -> StoredContent:
    """Compress and store the files of a collection without writing rows, and return their references.

    Judgments, answers, and subtopics of the scored split are stored in the private area. Public copies are stored of
    judgments that may be offered, and of answers and subtopics if judgments are open.
    """
    if source.queries is None:
        raise ValueError("a collection that passed inspection has queries")
    progress("storing", 0.0)
    public_judgements = {}
    for split, judgements in collection.judgements.items():
        if split == options.split:
            put(Area.QRELS, judgements.path, judgements.sha256)
        if files.may_offer_judgements(split, scored_split=options.split, hidden=bool(options.hidden)):
            public_judgements[split] = files.store_judgements(judgements.path, work)
    answers, subtopics = collection.answers, collection.subtopics
    excluded, topics = collection.excluded, collection.topics.path
    for private_file in filter(None, (answers, subtopics)):
        put(Area.QRELS, *private_file)

    def store(path: Path, name: str) -> files.StoredFile:
        return files.store_file(files.gzipped(path, work / name))

    id_table_sha256 = ""
    if collection.id_table is not None:  # Reuse the stored table, because a rebuilt one would have other bytes.
        versions = DatasetVersion.objects.filter(dataset__slug=options.slug)
        existing_version = versions.filter(content_sha256=collection.content_sha256).first()
        id_table_sha256 = (
            existing_version.document_ids_sha256 if existing_version else put(Area.INDEXES, collection.id_table)
        )
    corpus = source.corpus if collection.corpus is not None else None
    content = StoredContent(
        queries=store(source.queries, "queries.gz"),
        topics=store(topics, "topics.gz") if topics else None,
        corpus=files.store_file(files.in_blocks(corpus, work / "corpus.gz")) if corpus else None,
        document_ids=store(collection.id_list, "ids.gz") if collection.id_list else None,
        id_table_sha256=id_table_sha256,
        judgements=public_judgements,
        answers=store(answers.path, "answers.gz") if answers and not options.hidden else None,
        subtopics=store(subtopics.path, "subtopic-qrels.gz") if subtopics and not options.hidden else None,
        excluded=store(excluded.path, "excluded.gz") if excluded else None,
        candidates=_store_candidates(collection, options.split, work) if options.candidates_only else None,
        tags=source.tags,
    )
    progress("storing", 1.0)
    return content


def _store_candidates(collection: InspectedCollection, split: str, work: Path) -> files.StoredFile | None:
    """Store the judged documents of each query as a run, in an order that does not depend on grades.

    Documents that are not in the corpus are omitted. Returns None if the split has no judgments.
    """
    if split not in collection.judgements:
        return None
    judgements = collection.judgements[split]
    pairs = ((query, name) for query, name, _ in judgements.qrels.judgements() if name not in judgements.missing)
    ordered_pairs = sorted(pairs, key=lambda pair: (pair[0], sha256(" ".join(pair).encode()).digest()))
    lines = (f"{query} Q0 {name} {place} -{place} candidates\n" for place, (query, name) in enumerate(ordered_pairs, 1))
    run_path = work / "candidates.txt"
    run_path.write_text("".join(lines), "utf-8")
    return files.store_file(files.gzipped(run_path, work / "candidates.gz"))


def create_version(
    dataset: Dataset, collection: InspectedCollection, content: StoredContent, options: ImportOptions
) -> DatasetVersion:
    """Create the dataset's next version from the stored files and the statistics of the collection."""
    latest_number = dataset.versions.aggregate(latest=Max("number"))["latest"] or 0
    return DatasetVersion.objects.create(
        dataset=dataset,
        number=latest_number + 1,
        label=options.version_label,
        content_sha256=collection.content_sha256,
        corpus_sha256=content.corpus.sha256 if content.corpus else "",
        queries_sha256=content.queries.sha256,
        topics_sha256=(content.topics or content.queries).sha256,
        document_ids_sha256=content.id_table_sha256,
        excluded_sha256=content.excluded.sha256 if content.excluded else "",
        statistics=collection.statistics(),
    )


def set_corpus(version: DatasetVersion, content: StoredContent) -> None:
    """Change an existing version to read its corpus from the file of this import, if there is one.

    The documents are the same, but an older file may not be stored in blocks.
    """
    if content.corpus is not None and version.corpus_sha256 != content.corpus.sha256:
        version.corpus_sha256 = content.corpus.sha256
        version.save(update_fields=["corpus_sha256"])


def set_topics(version: DatasetVersion, collection: InspectedCollection, content: StoredContent) -> bool:
    """Set the topics of an existing version to the topics of this import, and return whether they changed."""
    topics_sha256 = content.topics.sha256 if content.topics else version.queries_sha256
    if version.topics_sha256 == topics_sha256:
        return False
    version.topics_sha256, version.statistics = topics_sha256, collection.statistics()
    version.save(update_fields=["topics_sha256", "statistics"])
    return True


def offer_content(
    version: DatasetVersion, content: StoredContent, scored_split: str, *, with_scored: bool = True
) -> bool:
    """Offer the version's files, including the scored judgments if these are open; return whether an offer changed.

    `with_scored` is False if results have to be rescored first: the switch then offers the scored judgments. With
    hidden judgments, only the splits of this import are offered, and others are withdrawn, because they were not
    compared with the hidden ones.
    """
    hidden = version.dataset.hidden
    files_before = set(version.files.values_list("name", "sha256"))
    files.offer_file(version, Kind.QUERIES, files.stored_file(version.topics_sha256), files.QUERIES_NAME)
    if version.topics_sha256 != version.queries_sha256:
        files.offer_file(version, Kind.ALL_QUERIES, files.stored_file(version.queries_sha256), files.ALL_QUERIES_NAME)
    else:
        files.withdraw_file(version, files.ALL_QUERIES_NAME)
    judgement_files = {
        files.judgements_name(split): (split, stored_judgements)
        for split, stored_judgements in content.judgements.items()
        if files.may_offer_judgements(split, scored_split=scored_split, hidden=hidden)
        and (with_scored or split != scored_split)
    }
    for file in version.files.filter(kind=Kind.QRELS) if hidden else ():
        if file.name not in judgement_files:
            files.withdraw_file(version, file.name)
    for name, (split, stored_judgements) in judgement_files.items():
        files.offer_file(version, Kind.QRELS, stored_judgements, name, f"The {split} judgments")
    for kind, stored_file, name, description in (
        (Kind.CORPUS, content.corpus, "corpus.jsonl.gz", ""),
        (Kind.DOCUMENT_IDS, content.document_ids, "document-ids.txt.gz", ""),
        (Kind.EXCLUDED, content.excluded, files.EXCLUDED_NAME, ""),
        (Kind.CANDIDATES, content.candidates, "candidates.txt.gz", ""),
        (Kind.QRELS, content.answers, "answers.jsonl.gz", "The answer strings"),
        (Kind.QRELS, content.subtopics, "subtopic-qrels.txt.gz", "The judgments by subtopic"),
    ):
        if stored_file is not None:
            files.offer_file(version, kind, stored_file, name, description)
    return set(version.files.values_list("name", "sha256")) != files_before
