"""Reading a collection through once: statistics, checksums, document ids, and everything that is wrong with it.

The topics are the queries that a run is to answer. BEIR's `queries.jsonl` holds the queries of all splits: half a
million of MS MARCO's are train queries, beside the 6,980 that are scored. Left out are those that only published
judgements name. Queries that no judgements name stay, so that the topics do not tell which of them hidden judgements
name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.archives.compression import open_blocks
from evaluation.collections.beir import FileProblems, iterate_queries
from evaluation.collections.check import (
    CorpusStatistics,
    QueryStatistics,
    check_corpus,
    check_document_ids,
    check_queries,
)
from evaluation.collections.document_ids import DocumentIds
from evaluation.core.errors import InvalidContent
from evaluation.core.files import sha256_of
from evaluation.core.problems import Problem
from evaluation.judgements.answers import read_answers
from evaluation.judgements.excluded import read_excluded
from evaluation.judgements.merge import write_judgements
from evaluation.judgements.qrels import Qrels, read_grades, read_qrels
from evaluation.verification.comparing import Judgements
from leaderboard.datasets.problems import IDS_NAMED, in_file, problem, unknown_ids
from leaderboard.datasets.qrels import JudgementFile, documents_not_in_corpus
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.importing.collections.source import CollectionFiles, Progress


@dataclass(frozen=True, slots=True)
class Topics:
    """The queries to answer; `path` holds them, and is None where these are all queries."""

    ids: Collection[str]
    statistics: QueryStatistics
    path: Path | None = None


class PlainFile(NamedTuple):
    """A file without compression, and its checksum."""

    path: Path
    sha256: str


class ExcludedDocuments(NamedTuple):
    """The documents that are left out of rankings, by query, and a plain copy of their file."""

    pairs: Qrels
    file: PlainFile


@dataclass(frozen=True, slots=True)
class InspectedCollection:
    """A collection that may be stored. `id_list` has one document id a line, `id_table` the same memory-mapped.

    `origin` says where it was fetched from (`source`) and which field of TREC topics is asked (`topic_field`).
    """

    corpus: CorpusStatistics | None
    queries: QueryStatistics
    id_list: Path | None
    id_table: Path | None
    topics: Topics
    answers: PlainFile | None = None
    judgements: dict[str, JudgementFile] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    excluded: ExcludedDocuments | None = None

    @property
    def content_sha256(self) -> str:
        """Over the checksums of the expanded files, so that compression makes no difference."""
        documents = self.corpus.sha256 if self.corpus else sha256_of(self.id_list) if self.id_list else "none"
        named = f"documents {documents}\nqueries {self.queries.sha256}\n"
        if self.excluded is not None:
            named += f"excluded {self.excluded.file.sha256}\n"
        return hashlib.sha256(named.encode()).hexdigest()

    def statistics(self) -> dict[str, Any]:
        """What Table 1 of the BEIR paper says of a collection, and the checksums of its expanded files.

        `queries` and `words_per_query` are of the queries to answer, as in that table.
        """
        statistics: dict[str, Any] = {
            "queries": self.topics.statistics.queries,
            "all_queries": self.queries.queries,
            "words_per_query": self.topics.statistics.mean_words,
            "queries_expanded_sha256": self.queries.sha256,
            **self.origin,
        }
        if self.corpus is not None:
            statistics |= {
                "documents": self.corpus.documents,
                "words_per_document": self.corpus.mean_words,
                "empty_documents": self.corpus.empty_documents,
                "share_with_titles": self.corpus.share_with_titles,
                "has_titles": int(self.corpus.share_with_titles > 0),
                "corpus_bytes": self.corpus.bytes,
                "corpus_expanded_sha256": self.corpus.sha256,
            }
        elif self.id_table is not None:
            statistics["documents"] = len(DocumentIds.open(self.id_table))
        if self.excluded is not None:
            statistics["excluded"] = self.excluded.pairs.number_of_judgements
            statistics["queries_with_excluded"] = len(self.excluded.pairs.query_ids)
        return statistics


def inspect(
    source: CollectionFiles, options: ImportOptions, work: Path, progress: Progress
) -> InspectedCollection:
    """Read everything once. Raises InvalidContent with all problems of all files together."""
    problems: list[Problem] = list(source.problems)
    query_ids: set[str] = set()
    queries = corpus = None
    if source.queries is not None:
        with _collect_problems(problems):
            queries = check_queries(source.queries, query_ids.add, partial(progress, "queries"))
    id_list = work / "document-ids.txt"
    with _collect_problems(problems):
        corpus = _inspect_documents(source, id_list, progress)
    id_table = _build_table(id_list, work, progress)
    known = _KnownIds(query_ids, id_table, whole=len(problems) == len(source.problems))
    judgements = {}
    for split in sorted(source.qrels):
        progress(f"{split} qrels", 0.0)
        with _collect_problems(problems):
            read = _read_judgements(source.qrels[split], split, work, may_be_empty=options.collecting)
            if read is not None:
                missing, found = known.check(read.qrels, f"{split} qrels", strict=options.strict)
                judgements[split] = replace(read, missing=missing)
                problems += found
        progress(f"{split} qrels", 1.0)
    problems += check_collecting(options, judgements)
    answers = None
    if source.answers is not None:
        scored = judgements.get(options.split)
        with _collect_problems(problems):
            answers = _read_answers(source.answers, scored.qrels.query_ids if scored else (), work)
    excluded = None
    if source.excluded is not None:
        with _collect_problems(problems):
            excluded = _read_excluded(source.excluded, work)
            scored = judgements.get(options.split)
            problems += known.check(excluded.pairs, "excluded.tsv")[1]
            problems += _both(excluded.pairs, scored.qrels if scored else None, options)
    if problems or queries is None or source.queries is None:
        raise InvalidContent.of(*problems)
    origin = {"source": options.source, "topic_field": source.topic_field}
    wanted = _topic_ids(query_ids, {split: each.qrels for split, each in judgements.items()}, options)
    return InspectedCollection(
        corpus=corpus if not options.runs_only else None,
        queries=queries,
        id_list=id_list if id_table is not None else None,
        id_table=id_table,
        topics=_find_topics(source.queries, queries, query_ids, wanted, work),
        answers=answers,
        judgements=judgements,
        origin={name: said for name, said in origin.items() if said},
        excluded=excluded,
    )


@contextmanager
def _collect_problems(problems: list[Problem]) -> Iterator[None]:
    """Add what is wrong with one file to what is wrong with the others."""
    try:
        yield
    except InvalidContent as error:
        problems += error.report.problems


def _inspect_documents(source: CollectionFiles, id_list: Path, progress: Progress) -> CorpusStatistics | None:
    """Write the document ids to `id_list`, and say what the corpus holds where there is one."""
    with id_list.open("w", encoding="utf-8") as file:
        if source.corpus is not None:
            return check_corpus(
                source.corpus, lambda identifier: file.write(identifier + "\n"), partial(progress, "corpus")
            )
        if source.document_ids is not None:
            check_document_ids(source.document_ids, lambda identifier: file.write(identifier + "\n"))
    return None


def _build_table(id_list: Path, work: Path, progress: Progress) -> Path | None:
    """The memory-mapped set of the listed ids; None where none are listed."""
    if id_list.stat().st_size == 0:
        return None
    progress("document ids", 0.0)
    with id_list.open(encoding="utf-8") as lines:
        table = DocumentIds.build((line.rstrip("\n") for line in lines), work / "document-ids")
    progress("document ids", 1.0)
    return table.path


def _read_judgements(path: Path, split: str, work: Path, *, may_be_empty: bool) -> JudgementFile | None:
    """The split's judgements and a plain copy of their file; None for an empty file where that may be."""
    name = path.name
    try:
        qrels = read_qrels(path)
    except InvalidContent as error:
        if may_be_empty and {each.code for each in error.report.problems} == {"empty"}:
            return None
        raise InvalidContent.of(*in_file(name, error.report.problems)) from error
    file = _expanded(path, work / f"plain-{split}.tsv")
    if not _is_read_alike(file.path, qrels):
        write_judgements(read_grades(path), file.path)
        file = PlainFile(file.path, sha256_of(file.path))
    return JudgementFile(qrels, *file)


def _is_read_alike(path: Path, qrels: Qrels) -> bool:
    """Return whether the simpler reader that verifies scores reads the same judgments from the file."""
    try:
        return Judgements(path.read_bytes()).graded == qrels.as_dict()
    except ValueError:
        return False


def _expanded(path: Path, plain: Path) -> PlainFile:
    """A copy without compression at `plain`."""
    with plain.open("wb") as file:
        for block in open_blocks(path):
            file.write(block)
    return PlainFile(plain, sha256_of(plain))


def _read_answers(path: Path, judged: Iterable[str], work: Path) -> PlainFile:
    """A plain copy of the answers. Raises InvalidContent, also where a judged query has none."""
    try:
        answers = read_answers(path)
    except InvalidContent as error:
        raise InvalidContent.of(*in_file(path.name, error.report.problems)) from error
    if without := [query for query in judged if query not in answers]:
        named = ", ".join(without[:IDS_NAMED]) + (" …" if len(without) > IDS_NAMED else "")
        queries = "query has" if len(without) == 1 else "queries have"
        message = f"{path.name}: {len(without):,} judged {queries} no answer: {named}"
        hint = "Every judged query needs an answer; take queries without one out of the judgements."
        raise InvalidContent.of(problem("unanswered_query", message, hint, count=len(without)))
    return _expanded(path, work / "plain-answers.jsonl")


def _read_excluded(path: Path, work: Path) -> ExcludedDocuments:
    try:
        pairs = read_excluded(path)
    except InvalidContent as error:
        raise InvalidContent.of(*in_file(path.name, error.report.problems)) from error
    return ExcludedDocuments(pairs, _expanded(path, work / "plain-excluded.tsv"))


def _both(excluded: Qrels, judged: Qrels | None, options: ImportOptions) -> Iterator[Problem]:
    """Documents that are excluded for a query and relevant to it: no run could find them."""
    pairs = {(query, document) for query, document, _ in excluded.judgements()}
    level = options.relevance_level or 1
    both = [
        f"{query} {document}"
        for query, document, grade in (judged.judgements() if judged else ())
        if grade >= level and (query, document) in pairs
    ]
    if both:
        named = ", ".join(both[:IDS_NAMED]) + (" …" if len(both) > IDS_NAMED else "")
        message = f"excluded.tsv: {len(both):,} {'pair is' if len(both) == 1 else 'pairs are'} judged relevant: {named}"
        hint = "Take them out of excluded.tsv or out of the judgements."
        yield problem("excluded_and_relevant", message, hint, count=len(both))


class _KnownIds(NamedTuple):
    """The ids of a collection; `whole` is False if some lines, which may have judged documents, could not be read."""

    queries: set[str]
    id_table: Path | None
    whole: bool

    def check(self, qrels: Qrels, name: str, *, strict: bool = False) -> tuple[frozenset[str], list[Problem]]:
        """Return the documents of `qrels` that the corpus lacks, and the problems with its ids.

        Unknown queries are problems. Unknown documents are problems with `strict`, and if all are unknown, because the
        files then belong to different collections. None is unknown if the collection does not list its documents.
        """
        part = "" if self.whole else "the readable lines of "
        problems = []
        if unknown := [query for query in qrels.query_ids if self.queries and query not in self.queries]:
            problems.append(unknown_ids(name, "query", f"{part}queries.jsonl", unknown))
        if self.id_table is None:
            return frozenset(), problems
        missing = documents_not_in_corpus(qrels, DocumentIds.open(self.id_table))
        if missing and (strict or len(missing) == len({document for _, document, _ in qrels.judgements()})):
            problems.append(unknown_ids(name, "document", f"{part}the corpus", missing))
        return frozenset(missing), problems


def check_collecting(options: ImportOptions, judgements: dict[str, JudgementFile]) -> Iterator[Problem]:
    """Whether a dataset that is to collect runs is without the judgements that they would be scored against."""
    if options.collecting and options.split in judgements:
        yield problem(
            "collecting_with_judgements",
            f"{options.split} qrels are there, and the dataset is to collect runs before there are judgements",
            f"Leave out --collecting to have runs scored now; or take qrels/{options.split}.tsv (qrels.txt) out of the "
            "folder, and import it when the runs are in.",
        )


def check_split(split: str) -> Iterator[Problem]:
    """Whether the split's name can be a file's name here."""
    if not split.replace("-", "").replace("_", "").isalnum() or len(split) > 20 or not split.isascii():
        yield problem(
            "split", f"“{split}” is no name of a split", "Use letters, digits, - and _, such as test."
        )


def _topic_ids(queries: set[str], judgements: Mapping[str, Qrels], options: ImportOptions) -> set[str]:
    """All queries except those that only the judgements of other splits than the scored one name.

    All of them where the scored judgements are yet to come: they may judge again what another split judged. All of
    them, too, where there are no documents: such runs were made elsewhere, for what their track asked.
    """
    scored = judgements.get(options.split)
    if scored is None or options.runs_only:
        return queries
    elsewhere = {
        query for split, qrels in judgements.items() if split != options.split for query in qrels.query_ids
    }
    return queries - (elsewhere - set(scored.query_ids))


def _find_topics(
    path: Path, queries: QueryStatistics, every: set[str], wanted: set[str], work: Path
) -> Topics:
    """The topics of the queries file at `path`, all of whose ids are `every`. Lines are copied as they are."""
    if len(wanted) == len(every):
        return Topics(every, queries)
    target = work / "topics.jsonl"
    line = b""

    def remember(read: bytes) -> None:
        nonlocal line
        line = read

    with target.open("wb") as file:
        for _, query in iterate_queries(path, FileProblems(path.name), on_bytes=remember):
            if query.id in wanted:
                file.write(line if line.endswith(b"\n") else line + b"\n")
    return Topics(wanted, check_queries(target), target)
