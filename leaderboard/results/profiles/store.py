"""What workers find of collections and runs: the only writer of `CollectionProfile`, `Overlap` and `RunProfile`.

Finding reads files and writes no row; recording writes the rows, in the transaction that moves the job on.
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
    Visibility,
    WorkRequest,
)
from leaderboard.results.board_rows.revisions import lock_board

#: So many of each query's first documents are looked at: what nDCG@10 sees, and Figure 4 of the BEIR paper.
DEPTH = 10
#: So many runs are profiled by one job; the others wait for the next.
RUNS_AT_ONCE = 50

#: Told the share of the work that is done, 0 to 1. It may raise to stop it.
Progress = Callable[[float], None]
#: A version, and the columns of its profile that were found.
CollectionFindings = tuple[DatasetVersion, dict[str, Any]]
#: What was found between collections, and of runs.
OverlapFindings = tuple[list[Overlap], list[RunProfile]]


def request_missing_statistics() -> int:
    """Ask for the profiles of collections for which nobody has asked since they came. Returns how many."""
    asked = WorkRequest.objects.filter(
        kind=WorkRequest.Kind.STATISTICS,
        dataset=OuterRef("pk"),
        created_at__gte=OuterRef("current_version__created_at"),
    )
    missing = Dataset.objects.filter(
        ~Exists(asked), current_version__profile=None, current_version__isnull=False
    ).exclude(current_version__corpus_sha256="")
    found = list(missing.order_by("pk").values_list("pk", flat=True))
    for dataset in found:
        request_statistics(dataset)
    return len(found)


def profile_collection(
    dataset: Dataset, work: Path, progress: Progress = lambda share: None
) -> CollectionFindings | None:
    """Read what is not known yet of the dataset's current texts; None where it has none here.

    One pass over the corpus where there is no profile; with other judgements or visibilities than the last time, the
    lengths of relevant documents and the example are found anew. `work` is an empty folder.
    """
    version, judged = dataset.current_version, _open_judgements(dataset)
    if version is None or not version.corpus_sha256:
        return None
    corpus = local_path(Area.FILES, version.corpus_sha256)
    known = CollectionProfile.objects.filter(version=version).first()
    basis = _basis(dataset)
    if known is not None and known.example.get("basis") == basis:
        return version, {}
    query, relevant, grade = _choose_example(version, judged)
    wanted = [relevant] if relevant else []
    values: dict[str, Any] = {}
    if known is None:
        profile = profile_corpus(corpus, progress, examples=wanted)
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
        documents = _documents(corpus, wanted, progress)
        lengths = read_document_lengths(path_of(Area.PROFILES, known.terms_sha256))
    values["example"] = {"basis": basis}
    document = documents.get(relevant) if relevant else next(iter(documents.values()), None)
    if basis["public"] and document is not None:
        values["example"] |= {"query": query._asdict(), "document": document._asdict(), "grade": grade}
    values["relevance_by_length"] = {}
    if judged is not None:
        # The document of every relevant pair: one relevant to two queries counts twice.
        pairs, level = load_open_qrels(judged).judgements(), dataset.relevance_level
        found = LengthDistribution.of(lengths.find(each for _, each, grade in pairs if grade >= level))
        values["relevance_by_length"] = {"qrels": judged.pk, "lengths": found.as_data()}
    return version, values


def _basis(dataset: Dataset) -> dict[str, Any]:
    """What decides, beside the texts themselves, what is found of them."""
    judged = _open_judgements(dataset)
    public = dataset.queries_visibility == dataset.documents_visibility == Visibility.PUBLIC
    return {"qrels": judged.pk if judged else None, "public": public}


def _open_judgements(dataset: Dataset) -> Qrels | None:
    """Return the current judgements if they are open, with only the columns that a retriever may read, or else None."""
    if dataset.hidden or dataset.current_qrels_id is None:
        return None
    rows = Qrels.objects.select_related("version__dataset")
    columns = ("sha256", "version__dataset__hidden", "version__dataset__slug")
    return rows.only(*columns).get(pk=dataset.current_qrels_id)


def _choose_example(version: DatasetVersion, judged: Qrels | None) -> tuple[Query, str, int | None]:
    """Return the first query with a relevant document, and of these the best, of equal ones the first by id.

    The grade is the document's. Without open judgements: the first query, and no document in particular, since any
    choice would say something.
    """
    dataset = version.dataset
    topics = local_path(Area.FILES, version.topics_sha256)
    relevant: dict[str, tuple[int, str]] = {}
    if judged is not None:
        for query_id, document, grade in load_open_qrels(judged).judgements():
            best = relevant.get(query_id)
            is_itself = dataset.drop_self_matches and document == query_id
            if grade >= dataset.relevance_level and not is_itself and (best is None or grade > best[0]):
                relevant[query_id] = (grade, document)
    first = Query("", "")
    for number, (_, query) in enumerate(iterate_queries(topics, FileProblems(topics.name))):
        first = query if number == 0 else first
        if query.id in relevant:
            grade, document = relevant[query.id]
            return query, document, grade
        if not relevant:
            break
    return first, "", None


def _documents(corpus: Path, wanted: Sequence[str], progress: Progress) -> dict[str, Document]:
    """These documents, or, with none named, the first that has a text."""
    found: dict[str, Document] = {}
    for _, document in iterate_documents(corpus, FileProblems(corpus.name), progress):
        if document.id in wanted or (not wanted and document.text.strip()):
            found[document.id] = document
            if len(found) >= max(len(wanted), 1):
                break
    return found


def store_collection_profile(found: CollectionFindings) -> None:
    """Write the profile of a version's texts."""
    version, values = found
    if values:
        CollectionProfile.objects.update_or_create(version=version, defaults=values)


def find_overlaps(dataset: Dataset, progress: Progress = lambda share: None) -> OverlapFindings:
    """Compare the dataset's texts with all others, and look at its runs. Its own profile is recorded already.

    Of two jobs that end together the one that records its profile later sees the other's, so no pair is missed.
    """
    own = CollectionProfile.objects.filter(version=dataset.current_version_id).first()
    if own is None:
        return [], []
    overlaps = _overlaps(own, progress)
    waiting = list(runs_without_profile(dataset)[:RUNS_AT_ONCE])
    profiles = []
    if waiting:
        lengths = read_document_lengths(path_of(Area.PROFILES, own.terms_sha256))
        for number, run in enumerate(waiting):
            progress(number / len(waiting))
            excluded, drop = run.version.excluded_sha256, run.version.dataset.drop_self_matches
            prepare_run(run.sha256, excluded)
            found = LengthDistribution.of(
                lengths.find(
                    document
                    for query, ranked in TopDocuments(top_documents_path(run.sha256, excluded))
                    for document in displayed_documents(ranked, query, depth=DEPTH, drop_self_matches=drop)
                )
            )
            profiles.append(RunProfile(run=run, depth=DEPTH, document_lengths=found.as_data()))
    return overlaps, profiles


def _overlaps(own: CollectionProfile, progress: Progress) -> list[Overlap]:
    """The overlaps that are not known yet of these texts with the current ones of other datasets."""
    pairs = Overlap.objects.filter(Q(first=own.version_id) | Q(second=own.version_id))
    known = {version for pair in pairs.values_list("first_id", "second_id") for version in pair}
    current = Dataset.objects.filter(current_version__isnull=False).values("current_version_id")
    others = CollectionProfile.objects.filter(version_id__in=current).exclude(
        version_id__in={own.version_id, *known}
    )
    unigrams = None
    found = []
    for other in others.order_by("version_id"):
        progress(0.0)
        unigrams = unigrams or read_unigrams(path_of(Area.PROFILES, own.terms_sha256))
        similarity = weighted_jaccard(unigrams, read_unigrams(path_of(Area.PROFILES, other.terms_sha256)))
        first, second = sorted((own.version_id, other.version_id))
        found.append(Overlap(first_id=first, second_id=second, weighted_jaccard=similarity))
    return found


def runs_without_profile(dataset: Dataset) -> QuerySet[Run]:
    """The runs behind public results on open judgements of the current version whose documents were not looked at."""
    if dataset.hidden:
        return Run.objects.none()
    public = Entry.objects.filter(dataset=dataset, visibility=Entry.Visibility.PUBLIC)
    public_run = Q(evaluations__entry__in=public) | Q(evaluations__seed__entry__in=public)
    return (
        Run.objects.filter(public_run, version=dataset.current_version_id, profile=None)
        .select_related("version__dataset")
        .distinct()
        .order_by("pk")
    )


def store_overlaps(dataset: Dataset, found: OverlapFindings) -> None:
    """Write overlaps and run profiles, and ask again where there is more to find by now.

    What somebody else wrote meanwhile is the same and stays.
    """
    overlaps, profiles = found
    Overlap.objects.bulk_create(overlaps, ignore_conflicts=True)
    RunProfile.objects.bulk_create(profiles, ignore_conflicts=True)
    # A change that was not committed when its request was taken up has been looked for in vain. It holds the board's
    # row, so with that locked it is either seen here or still to ask.
    present = lock_board(dataset.pk)
    known = CollectionProfile.objects.filter(version=present.current_version_id).first()
    is_current = known is not None and known.example.get("basis") == _basis(present)
    if not is_current or runs_without_profile(present).exists():
        request_statistics(dataset.pk)
