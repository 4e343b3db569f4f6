"""Storage of collection and run statistics; the only writer of `CollectionProfile`, `Overlap`, and `RunProfile`.

Profiling reads files without writing rows. Rows are written in the transaction that completes the job.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from django.db.models import Exists, OuterRef, Q, QuerySet

from evaluation.collections.beir import Document, FileProblems, Query, iterate_documents, iterate_queries
from evaluation.collections.profiles import (
    LengthDistribution,
    profile_corpus,
    read_document_lengths,
    read_unigrams,
    weighted_jaccard,
    write_profile,
)
from evaluation.runs.top_documents import TopDocuments, displayed_documents
from leaderboard.core.storage.store import Area, local_path, path_of, put
from leaderboard.core.work_requests import request_statistics
from leaderboard.datasets.derived_files import prepare_run, top_documents_path
from leaderboard.datasets.qrels import load_open_qrels
from leaderboard.models import (
    CollectionProfile,
    Dataset,
    DatasetVersion,
    Entry,
    Overlap,
    Qrels,
    Run,
    RunProfile,
    WorkRequest,
)
from leaderboard.results.board_rows.revisions import lock_board

#: Number of top documents per query to profile, as for nDCG@10 and in Figure 4 of the BEIR paper.
DEPTH = 10
#: Maximum number of runs per job; the others follow in the next one.
RUNS_AT_ONCE = 50

#: Progress callback with the fraction done, 0 to 1. It may raise to stop the work.
Progress = Callable[[float], None]
#: A version, and the new column values of its profile.
CollectionFindings = tuple[DatasetVersion, dict[str, Any]]
#: New overlaps between collections, and new run profiles.
OverlapFindings = tuple[list[Overlap], list[RunProfile]]


def request_missing_statistics() -> int:
    """Request profiles of collections without a request since their current version, and return their number."""
    requests = WorkRequest.objects.filter(
        kind=WorkRequest.Kind.STATISTICS,
        dataset=OuterRef("pk"),
        created_at__gte=OuterRef("current_version__created_at"),
    )
    unrequested_datasets = Dataset.objects.filter(
        ~Exists(requests), current_version__profile=None, current_version__isnull=False
    ).exclude(current_version__corpus_sha256="")
    dataset_ids = list(unrequested_datasets.order_by("pk").values_list("pk", flat=True))
    for dataset in dataset_ids:
        request_statistics(dataset)
    return len(dataset_ids)


def profile_collection(
    dataset: Dataset, work: Path, progress: Progress = lambda share: None
) -> CollectionFindings | None:
    """Compute missing statistics of the dataset's current texts; return None if Runboard stores none.

    Returns the version and its new columns, which are empty if nothing has changed. Without a stored profile, this
    takes one pass over the corpus. If only judgments or visibilities changed, it recomputes the lengths of relevant
    documents and the example. `work` is an empty folder.
    """
    version, qrels = dataset.current_version, _open_judgements(dataset)
    if version is None or not version.corpus_sha256:
        return None
    corpus = local_path(Area.FILES, version.corpus_sha256)
    stored_profile = CollectionProfile.objects.filter(version=version).first()
    basis = _profile_basis(dataset)
    if stored_profile is not None and stored_profile.example.get("basis") == basis:
        return version, {}
    query, relevant_id, grade = _choose_example(version, qrels)
    document_ids = [relevant_id] if relevant_id else []
    values: dict[str, Any] = {}
    if stored_profile is None:
        profile = profile_corpus(corpus, progress, examples=document_ids)
        documents, lengths, unigrams = profile.examples, profile.documents, profile.unigrams
        write_profile(profile, work / "profile")
        values = {
            "terms_sha256": put(Area.PROFILES, work / "profile"),
            "tokens": unigrams.total,
            "dropped": unigrams.dropped,
            "vocabulary": unigrams.vocabulary,
            "document_lengths": profile.lengths.as_data(),
        }
    else:
        documents = _find_documents(corpus, document_ids, progress)
        lengths = read_document_lengths(path_of(Area.PROFILES, stored_profile.terms_sha256))
    values["example"] = {"basis": basis}
    document = documents.get(relevant_id) if relevant_id else next(iter(documents.values()), None)
    if basis["public"] and document is not None:
        values["example"] |= {"query": query._asdict(), "document": document._asdict(), "grade": grade}
    values["relevance_by_length"] = {}
    if qrels is not None:
        # Lengths count each relevant pair, so a document relevant to two queries counts twice.
        pairs, level = load_open_qrels(qrels).judgements(), dataset.relevance_level
        relevant_lengths = LengthDistribution.from_lengths(
            lengths.find(document_id for _, document_id, grade in pairs if grade >= level)
        )
        values["relevance_by_length"] = {"qrels": qrels.pk, "lengths": relevant_lengths.as_data()}
    return version, values


def _profile_basis(dataset: Dataset) -> dict[str, Any]:
    """Return the inputs of a profile other than the texts: open qrels, or None, and whether all texts are public."""
    qrels = _open_judgements(dataset)
    return {"qrels": qrels.pk if qrels else None, "public": dataset.has_public_texts}


def _open_judgements(dataset: Dataset) -> Qrels | None:
    """Return the current judgments if they are open, or None. Loads only the columns that a retriever may read."""
    if dataset.hidden or dataset.current_qrels_id is None:
        return None
    rows = Qrels.objects.select_related("version__dataset")
    columns = ("sha256", "version__dataset__hidden", "version__dataset__slug")
    return rows.only(*columns).get(pk=dataset.current_qrels_id)


def _choose_example(version: DatasetVersion, qrels: Qrels | None) -> tuple[Query, str, int | None]:
    """Return the first query that has a relevant document, the most relevant such document, and its grade.

    Ties are resolved by the order of the judgments. Without open judgments, the result is the first query and no
    document, because any choice would reveal something.
    """
    dataset = version.dataset
    topics = local_path(Area.FILES, version.topics_sha256)
    best_documents: dict[str, tuple[int, str]] = {}
    if qrels is not None:
        for query_id, document, grade in load_open_qrels(qrels).judgements():
            best_so_far = best_documents.get(query_id)
            is_itself = dataset.drop_self_matches and document == query_id
            if grade >= dataset.relevance_level and not is_itself and (best_so_far is None or grade > best_so_far[0]):
                best_documents[query_id] = (grade, document)
    first_query = Query("", "")
    for number, (_, query) in enumerate(iterate_queries(topics, FileProblems(topics.name))):
        first_query = query if number == 0 else first_query
        if query.id in best_documents:
            grade, document = best_documents[query.id]
            return query, document, grade
        if not best_documents:
            break
    return first_query, "", None


def _find_documents(corpus: Path, document_ids: Sequence[str], progress: Progress) -> dict[str, Document]:
    """Return the requested documents, or the first one with a text if none are given."""
    documents: dict[str, Document] = {}
    for _, document in iterate_documents(corpus, FileProblems(corpus.name), progress):
        if document.id in document_ids or (not document_ids and document.text.strip()):
            documents[document.id] = document
            if len(documents) >= max(len(document_ids), 1):
                break
    return documents


def store_collection_profile(findings: CollectionFindings) -> None:
    version, values = findings
    if values:
        CollectionProfile.objects.update_or_create(version=version, defaults=values)


def find_overlaps(dataset: Dataset, progress: Progress = lambda share: None) -> OverlapFindings:
    """Compute the missing overlaps of the dataset's texts with all others, and profiles of up to RUNS_AT_ONCE runs.

    Both are empty if the dataset's own profile is not stored. It must be stored first: of two concurrent jobs, the one
    that stores its profile later sees the other's, so no pair is missed.
    """
    profile = CollectionProfile.objects.filter(version=dataset.current_version_id).first()
    if profile is None:
        return [], []
    overlaps = _compute_overlaps(profile, progress)
    pending_runs = list(runs_without_profile(dataset)[:RUNS_AT_ONCE])
    profiles = []
    if pending_runs:
        lengths = read_document_lengths(path_of(Area.PROFILES, profile.terms_sha256))
        for number, run in enumerate(pending_runs):
            progress(number / len(pending_runs))
            excluded_sha256, drop = run.version.excluded_sha256, run.version.dataset.drop_self_matches
            prepare_run(run.sha256, excluded_sha256)
            run_lengths = LengthDistribution.from_lengths(
                lengths.find(
                    document
                    for query, documents in TopDocuments(top_documents_path(run.sha256, excluded_sha256))
                    for document in displayed_documents(documents, query, depth=DEPTH, drop_self_matches=drop)
                )
            )
            profiles.append(RunProfile(run=run, depth=DEPTH, document_lengths=run_lengths.as_data()))
    return overlaps, profiles


def _compute_overlaps(profile: CollectionProfile, progress: Progress) -> list[Overlap]:
    """Compute the missing overlaps of the dataset's texts with the current texts of other datasets."""
    pairs = Overlap.objects.filter(Q(first=profile.version_id) | Q(second=profile.version_id))
    compared_ids = {version for pair in pairs.values_list("first_id", "second_id") for version in pair}
    current_versions = Dataset.objects.filter(current_version__isnull=False).values("current_version_id")
    other_profiles = CollectionProfile.objects.filter(version_id__in=current_versions).exclude(
        version_id__in={profile.version_id, *compared_ids}
    )
    unigrams = None
    overlaps = []
    for other_profile in other_profiles.order_by("version_id"):
        progress(0.0)
        unigrams = unigrams or read_unigrams(path_of(Area.PROFILES, profile.terms_sha256))
        similarity = weighted_jaccard(unigrams, read_unigrams(path_of(Area.PROFILES, other_profile.terms_sha256)))
        first, second = sorted((profile.version_id, other_profile.version_id))
        overlaps.append(Overlap(first_id=first, second_id=second, weighted_jaccard=similarity))
    return overlaps


def runs_without_profile(dataset: Dataset) -> QuerySet[Run]:
    """Return unprofiled runs of public results on the current version; none if judgments are hidden."""
    if dataset.hidden:
        return Run.objects.none()
    public_entries = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.PUBLIC)
    has_public_result = Q(evaluations__entry__in=public_entries) | Q(evaluations__seed__entry__in=public_entries)
    return (
        Run.objects.filter(has_public_result, version=dataset.current_version_id, profile=None)
        .select_related("version__dataset")
        .distinct()
        .order_by("pk")
    )


def store_overlaps(dataset: Dataset, findings: OverlapFindings) -> None:
    """Store overlaps and run profiles; request another job if the dataset has changed or runs lack a profile.

    Rows that a concurrent job stored are equal and remain.
    """
    overlaps, profiles = findings
    Overlap.objects.bulk_create(overlaps, ignore_conflicts=True)
    RunProfile.objects.bulk_create(profiles, ignore_conflicts=True)
    # A change that was uncommitted when this job began was missed. Locking the board's row makes it visible here,
    # or lets its own request follow.
    locked_dataset = lock_board(dataset.pk)
    profile = CollectionProfile.objects.filter(version=locked_dataset.current_version_id).first()
    is_current = profile is not None and profile.example.get("basis") == _profile_basis(locked_dataset)
    if not is_current or runs_without_profile(locked_dataset).exists():
        request_statistics(dataset.pk)
