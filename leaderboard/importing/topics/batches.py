"""Batches of topics: drawn from docstrings, or prepared by a curator, and stored privately until they are started.

Batches are drawn with the operating system's random numbers when they are started. There is no seed to keep secret, and
a batch cannot be computed in advance.
"""

import secrets
import sysconfig
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from django.db.models import Q

from evaluation.archives.zip import open_archive
from evaluation.collections.beir import read_corpus, read_queries
from evaluation.core.problems import InvalidContent, Problem
from leaderboard.core.storage.store import Area, local_path, put, work_folder
from leaderboard.datasets.problems import in_file, missing_file, name_some, problem
from leaderboard.datasets.qrels import private_paths
from leaderboard.importing.collections.inspection import Inspection
from leaderboard.importing.collections.source import ZIP_POLICY, CollectionFiles, ImportOptions
from leaderboard.importing.collections.twins import MIN_TOPICS, too_few
from leaderboard.importing.topics.code_search import Function, choose_queries, read_distinct_functions, write_queries
from leaderboard.models import DatasetVersion, TopicBatch, TopicSource

#: Installation path (of `sysconfig`) and packages of each generator. Their functions are its documents.
_LIBRARIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    TopicSource.Generator.STDLIB: ("stdlib", ("",)),
    TopicSource.Generator.PACKAGES: ("purelib", ("django", "numpy", "scipy")),
}
#: Files of a batch.
_QUERIES, _QRELS = "queries.jsonl", "qrels.tsv"


class SourceExhausted(Exception):
    """A rolling benchmark has no topics for another batch; the message contains the reason."""


def read_library(generator: str) -> list[Function]:
    """Return the functions of the packages that a generator reads on this machine."""
    scheme, packages = _LIBRARIES[generator]
    return read_distinct_functions(Path(sysconfig.get_path(scheme)), packages)


def draw_batch(source: TopicSource, version: DatasetVersion, number: int) -> TopicBatch:
    """Draw and store the batch with this number over the documents of a version, without topics that were used.

    Topics are docstrings of functions that are in the corpus with the same code. Their ids reveal nothing about the
    function, because messages about runs contain ids.

    Raises:
        SourceExhausted: If batches are prepared files, or `source` has fewer than `batch_size` topics left.
    """
    if source.generator not in _LIBRARIES:
        raise SourceExhausted(f"{source} has no further prepared batch. Add one in the admin.")
    corpus = local_path(Area.FILES, version.corpus_sha256)
    documents = {document.id: document.text for document in read_corpus(corpus)}
    functions, used_texts = read_library(source.generator), _used_texts(source, version)
    present_names = {function.name for function in functions if documents.get(function.name) == function.source}
    candidates = [
        (text, name)
        for _, text, name in choose_queries(functions)
        if name in present_names and _normalize(text) not in used_texts
    ]
    if len(candidates) < source.batch_size:
        raise SourceExhausted(f"{source} has {len(candidates)} topics left, but a batch needs {source.batch_size}.")
    topics = secrets.SystemRandom().sample(candidates, source.batch_size)
    rows = [(f"batch-{number}-{place:03}", *topic) for place, topic in enumerate(topics, 1)]
    with work_folder("topics") as folder:
        write_queries(rows, folder / _QUERIES, folder / _QRELS)
        return _store_batch(source, number, folder)


def _store_batch(source: TopicSource, number: int, folder: Path) -> TopicBatch:
    checksums = {f"{name.split('.')[0]}_sha256": put(Area.QRELS, folder / name) for name in (_QUERIES, _QRELS)}
    return TopicBatch.objects.create(source=source, number=number, **checksums)


def _used_texts(source: TopicSource, version: DatasetVersion) -> set[str]:
    """Return the normalized texts of the queries of `version`, and of all datasets and batches over its documents.

    Batches of other rolling benchmarks are included, because topics that are public there cannot be hidden here.
    """
    documents = version.statistics.get("corpus_expanded_sha256")
    same_documents = Q(statistics__corpus_expanded_sha256=documents)
    versions = DatasetVersion.objects.filter(
        Q(pk=version.pk) | Q(dataset__topic_batch__source=source.pk) | same_documents
    )
    paths = [local_path(Area.FILES, sha256) for sha256 in versions.values_list("queries_sha256", flat=True)]
    sources = TopicSource.objects.filter(dataset__current_version__statistics__corpus_expanded_sha256=documents)
    stored_batches = TopicBatch.objects.filter(Q(source=source.pk) | Q(source__in=sources)).exclude(queries_sha256="")
    paths += private_paths(*stored_batches.values_list("queries_sha256", flat=True))
    return {_normalize(query.text) for path in paths for query in read_queries(path)}


def _normalize(text: str) -> str:
    return " ".join(text.casefold().split())


def check_prepared(archive: Path, source: TopicSource, version: DatasetVersion) -> None:
    """Check the batches in a zip: folders with `queries.jsonl` and `qrels.tsv` over the corpus of a version.

    Raises:
        InvalidContent: With the problems of all batches: missing and invalid files, judged documents that are not in
            the corpus, too few topics, no relevant document, and topics that occur twice or in a dataset or batch
            over the same documents.
    """
    documents, used_texts = local_path(Area.INDEXES, version.document_ids_sha256), _used_texts(source, version)
    problems = list[Problem]()
    for name, folder in _extract_batches(archive):
        try:
            used_texts |= _check_folder(folder, documents, used_texts)
        except InvalidContent as error:
            problems += in_file(name, error.report.problems)
    if problems:
        raise InvalidContent.build(*problems)


def add_prepared(archive: Path, source: TopicSource) -> None:
    """Store the batches in a checked zip after the last batch of `source`, in the order of their names."""
    last = source.batches.order_by("number").last()
    for number, (_, folder) in enumerate(_extract_batches(archive), last.number + 1 if last else 1):
        _store_batch(source, number, folder)


def _extract_batches(archive: Path) -> Iterator[tuple[str, Path]]:
    """Yield the name of each batch in a zip and a folder with its files.

    Raises InvalidContent without any batch, or if two folders have the same name.
    """
    with work_folder("topics") as work, open_archive(archive, ZIP_POLICY) as opened:
        folders = dict[str, str]()
        for parent, _, file in sorted(name.rpartition("/") for name in opened.names):
            name = parent.rpartition("/")[2]
            if parent and file in (_QUERIES, _QRELS) and folders.setdefault(name, parent) != parent:
                message = f"the folders {folders[name]} and {parent} have the same name"
                raise InvalidContent.build(problem("batch_repeated", message, "Rename one of them."))
        if not folders:
            hint = "Pack folders such as batch-01, each with queries.jsonl and qrels.tsv."
            raise InvalidContent.build(problem("no_batch", "the zip contains no batch", hint))
        for number, (name, parent) in enumerate(sorted(folders.items())):
            (folder := work / str(number)).mkdir()
            files = [file for file in (_QUERIES, _QRELS) if f"{parent}/{file}" in opened.names]
            opened.extract({f"{parent}/{file}": folder / file for file in files})
            yield name, folder


def _check_folder(folder: Path, documents: Path, used_texts: Collection[str]) -> set[str]:
    """Return the normalized texts of the topics in a folder. Raises InvalidContent with all problems."""
    queries, judgements = folder / _QUERIES, folder / _QRELS
    missing = [missing_file(path.name, f"Add {path.name}.") for path in (queries, judgements) if not path.exists()]
    if missing:
        raise InvalidContent.build(*missing)
    files = CollectionFiles(None, queries, None, qrels={"test": judgements})
    options = ImportOptions(slug="batch", runs_only=True, strict=True)
    inspection = Inspection(files, options, folder, lambda stage, share: None)
    inspection.id_table = documents
    qrels = inspection.read().judgements["test"].qrels
    texts = [(query.id, _normalize(query.text)) for query in read_queries(queries)]
    own_texts = {text: name for name, text in texts}
    repeated = [name for name, text in texts if text in used_texts or own_texts[text] != name]
    problems = [too_few("hidden", len(qrels.query_ids))] if len(qrels.query_ids) < MIN_TOPICS else []
    if not (qrels.grades > 0).any():
        hint = "Give each relevant document a positive grade, for example 1."
        problems.append(problem("no_relevant", "no judgment has a positive grade", hint))
    if repeated:
        message = f"topics with the same text as another topic: {name_some(repeated)}"
        problems.append(problem("topic_repeated", message, "Remove them. Use each topic once.", len(repeated)))
    if problems:
        raise InvalidContent.build(*problems)
    return set(own_texts)
