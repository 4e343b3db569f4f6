"""Reading a collection through once: statistics, checksums, document ids, and everything that is wrong with it.

The topics are the queries that a run is to answer. BEIR's `queries.jsonl` holds the queries of all splits: half a
million of MS MARCO's are train queries, beside the 6,980 that are scored. Left out are those that only published
judgements name. Queries that no judgements name stay, so that the topics do not tell which of them hidden judgements
name.
"""

import hashlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from evaluation.archives.compression import open_blocks
from evaluation.collections.check import (
    FileStatistics,
    check_corpus,
    check_document_ids,
    check_queries,
    copy_queries,
)
from evaluation.collections.document_ids import DocumentIds
from evaluation.core.files import sha256_of
from evaluation.core.problems import InvalidContent, Problem
from evaluation.judgements.answers import read_answers
from evaluation.judgements.merge import write_judgements
from evaluation.judgements.qrels import Qrels, read_excluded, read_grades, read_qrels
from evaluation.verification.comparing import Judgements
from leaderboard.datasets.problems import in_file, name_some, problem, unknown_ids
from leaderboard.datasets.qrels import JudgementFile, documents_not_in_corpus
from leaderboard.importing.collections.source import CollectionFiles, ImportOptions, Progress


@dataclass(frozen=True, slots=True)
class Topics:
    """The queries to answer; `path` holds them, and is None where these are all queries."""

    ids: Collection[str]
    statistics: FileStatistics
    path: Path | None = None


class PlainFile(NamedTuple):
    """A file without compression, and its checksum."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class InspectedCollection:
    """A collection that may be stored. `id_list` has one document id a line, `id_table` the same memory-mapped.

    `origin` says where it was fetched from (`source`) and which field of TREC topics is asked (`topic_field`).
    """

    corpus: FileStatistics | None
    queries: FileStatistics
    id_list: Path | None
    id_table: Path | None
    topics: Topics
    answers: PlainFile | None = None
    judgements: dict[str, JudgementFile] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    excluded: JudgementFile | None = None

    @property
    def content_sha256(self) -> str:
        """Over the checksums of the expanded files, so that compression makes no difference."""
        documents = self.corpus.sha256 if self.corpus else sha256_of(self.id_list) if self.id_list else "none"
        named = f"documents {documents}\nqueries {self.queries.sha256}\n"
        if self.excluded is not None:
            named += f"excluded {self.excluded.sha256}\n"
        return hashlib.sha256(named.encode()).hexdigest()

    def statistics(self) -> dict[str, Any]:
        """What Table 1 of the BEIR paper says of a collection, and the checksums of its expanded files.

        `queries` and `words_per_query` are of the queries to answer, as in that table.
        """
        statistics: dict[str, Any] = {
            "queries": self.topics.statistics.records,
            "all_queries": self.queries.records,
            "words_per_query": self.topics.statistics.mean_words,
            "queries_expanded_sha256": self.queries.sha256,
            **self.origin,
        }
        if self.corpus is not None:
            statistics |= {
                "documents": self.corpus.records,
                "words_per_document": self.corpus.mean_words,
                "empty_documents": self.corpus.empty,
                "share_with_titles": self.corpus.share_with_titles,
                "has_titles": int(self.corpus.share_with_titles > 0),
                "corpus_bytes": self.corpus.bytes,
                "corpus_expanded_sha256": self.corpus.sha256,
            }
        elif self.id_table is not None:
            statistics["documents"] = len(DocumentIds.open(self.id_table))
        if self.excluded is not None:
            statistics["excluded"] = self.excluded.qrels.number_of_judgements
            statistics["queries_with_excluded"] = len(self.excluded.qrels.query_ids)
        return statistics


class Inspection:
    """A collection as it is read; `problems` are those of all of its files."""

    def __init__(
        self, source: CollectionFiles, options: ImportOptions, work: Path, progress: Progress
    ) -> None:
        self.source, self.options, self.work, self.progress = source, options, work, progress
        self.problems: list[Problem] = list(source.problems)
        self.query_ids: set[str] = set()
        self.judgements: dict[str, JudgementFile] = {}
        self.id_table: Path | None = None
        #: Begins the name of a file of which some lines, which may have judged ids, could not be read.
        self.part = ""

    def read(self) -> InspectedCollection:
        """Read everything once. Raises InvalidContent with all problems of all files together."""
        source, options, work = self.source, self.options, self.work
        queries = corpus = answers = excluded = None
        if source.queries is not None:
            with self._reading():
                queries = check_queries(source.queries, self.query_ids.add, partial(self.progress, "queries"))
        id_list = work / "document-ids.txt"
        with self._reading():
            corpus = self._read_documents(id_list)
        self._build_table(id_list)
        self.part = "" if len(self.problems) == len(source.problems) else "the readable lines of "
        for split in sorted(source.qrels):
            self.progress(f"{split} qrels", 0.0)
            with self._reading(source.qrels[split].name):
                self._read_judgements(source.qrels[split], split)
            self.progress(f"{split} qrels", 1.0)
        if options.collecting and options.split in self.judgements:
            self.problems.append(
                problem(
                    "collecting_with_judgements",
                    f"{options.split} qrels are there, and the dataset is to collect runs before there are judgements",
                    "Leave out --collecting to have runs scored now; or take "
                    f"qrels/{options.split}.tsv (qrels.txt) out of the folder, and import it when the runs are in.",
                )
            )
        if source.answers is not None:
            with self._reading(source.answers.name):
                answers = self._read_answers(source.answers)
        if source.excluded is not None:
            with self._reading(source.excluded.name):
                excluded = self._read_excluded(source.excluded)
        if self.problems or queries is None or source.queries is None:
            raise InvalidContent.of(*self.problems)
        origin = {"source": options.source, "topic_field": source.topic_field}
        return InspectedCollection(
            corpus=corpus if not options.runs_only else None,
            queries=queries,
            id_list=id_list if self.id_table is not None else None,
            id_table=self.id_table,
            topics=self._find_topics(source.queries, queries),
            answers=answers,
            judgements=self.judgements,
            origin={name: value for name, value in origin.items() if value},
            excluded=excluded,
        )

    @contextmanager
    def _reading(self, file_name: str = "") -> Iterator[None]:
        """Add the problems of one file to those of the others, with its name if they lack it."""
        try:
            yield
        except InvalidContent as error:
            problems = error.report.problems
            self.problems += in_file(file_name, problems) if file_name else problems

    def _read_documents(self, id_list: Path) -> FileStatistics | None:
        """Write the document ids to `id_list`; return the statistics of the corpus, if there is one."""
        with id_list.open("w", encoding="utf-8") as file:
            if self.source.corpus is not None:
                return check_corpus(
                    self.source.corpus,
                    lambda identifier: file.write(identifier + "\n"),
                    partial(self.progress, "corpus"),
                )
            if self.source.document_ids is not None:
                check_document_ids(self.source.document_ids, lambda identifier: file.write(identifier + "\n"))
        return None

    def _build_table(self, id_list: Path) -> None:
        """Make the memory-mapped set of the listed ids, if any are listed."""
        if id_list.stat().st_size == 0:
            return
        self.progress("document ids", 0.0)
        with id_list.open(encoding="utf-8") as lines:
            ids = (line.rstrip("\n") for line in lines)
            self.id_table = DocumentIds.build(ids, self.work / "document-ids").path
        self.progress("document ids", 1.0)

    def _read_judgements(self, path: Path, split: str) -> None:
        """Add the split's judgements with a plain copy of their file. An empty file may be one that is to come."""
        try:
            qrels = read_qrels(path)
        except InvalidContent as error:
            if self.options.collecting and {each.code for each in error.report.problems} == {"empty"}:
                return
            raise
        file = _expanded(path, self.work / f"plain-{split}.tsv")
        try:  # does the simpler reader, which verifies scores, read the same?
            is_read_alike = Judgements(file.path.read_bytes()).graded == qrels.as_dict()
        except ValueError:
            is_read_alike = False
        if not is_read_alike:
            write_judgements(read_grades(path), file.path)
            file = PlainFile(file.path, sha256_of(file.path))
        missing = self._check_ids(qrels, f"{split} qrels", strict=self.options.strict)
        self.judgements[split] = JudgementFile(qrels, *file, missing)

    def _read_answers(self, path: Path) -> PlainFile:
        """Return a plain copy of the answers. Raises InvalidContent, also if a judged query has none."""
        answers = read_answers(path)
        scored = self.judgements.get(self.options.split)
        if without := [query for query in (scored.qrels.query_ids if scored else ()) if query not in answers]:
            queries = "query has" if len(without) == 1 else "queries have"
            message = f"{len(without):,} judged {queries} no answer: {name_some(without)}"
            hint = "Every judged query needs an answer; take queries without one out of the judgements."
            raise InvalidContent.of(problem("unanswered_query", message, hint, count=len(without)))
        return _expanded(path, self.work / "plain-answers.jsonl")

    def _read_excluded(self, path: Path) -> JudgementFile:
        """Return the excluded documents. None may be relevant to its query, because no run could find it."""
        excluded = JudgementFile(read_excluded(path), *_expanded(path, self.work / "plain-excluded.tsv"))
        self._check_ids(excluded.qrels, "excluded.tsv")
        pairs = {(query, document) for query, document, _ in excluded.qrels.judgements()}
        scored = self.judgements.get(self.options.split)
        both = [
            f"{query} {document}"
            for query, document, grade in (scored.qrels.judgements() if scored else ())
            if grade >= (self.options.relevance_level or 1) and (query, document) in pairs
        ]
        if both:
            counted = f"{len(both):,} {'pair is' if len(both) == 1 else 'pairs are'}"
            message = f"excluded.tsv: {counted} judged relevant: {name_some(both)}"
            hint = "Take them out of excluded.tsv or out of the judgements."
            self.problems.append(problem("excluded_and_relevant", message, hint, count=len(both)))
        return excluded

    def _check_ids(self, qrels: Qrels, name: str, *, strict: bool = False) -> frozenset[str]:
        """Return the documents of `qrels` that the corpus lacks, and add problems with its ids.

        Unknown queries are problems. Unknown documents are problems with `strict`, and if all are unknown, because the
        files then belong to different collections. None is unknown if the collection does not list its documents.
        """
        unknown = [query for query in qrels.query_ids if self.query_ids and query not in self.query_ids]
        if unknown:
            self.problems.append(unknown_ids(name, "query", f"{self.part}queries.jsonl", unknown))
        if self.id_table is None:
            return frozenset()
        missing = documents_not_in_corpus(qrels, DocumentIds.open(self.id_table))
        if missing and (strict or len(missing) == len({document for _, document, _ in qrels.judgements()})):
            self.problems.append(unknown_ids(name, "document", f"{self.part}the corpus", missing))
        return frozenset(missing)

    def _find_topics(self, path: Path, queries: FileStatistics) -> Topics:
        """Return all queries except those that only judgements of other splits than the scored one name.

        All of them if the scored judgements are yet to come: they may judge again what another split judged. All of
        them, too, if there are no documents: such runs were made elsewhere, for what their track asked.
        """
        scored = self.judgements.get(self.options.split)
        if scored is None or self.options.runs_only:
            return Topics(self.query_ids, queries)
        elsewhere = {query for each in self.judgements.values() for query in each.qrels.query_ids}
        wanted = self.query_ids - (elsewhere - set(scored.qrels.query_ids))
        if len(wanted) == len(self.query_ids):
            return Topics(self.query_ids, queries)
        target = self.work / "topics.jsonl"
        return Topics(wanted, copy_queries(path, wanted, target), target)


def _expanded(path: Path, plain: Path) -> PlainFile:
    """Write a copy without compression to `plain`."""
    with plain.open("wb") as file:
        for block in open_blocks(path):
            file.write(block)
    return PlainFile(plain, sha256_of(plain))


def check_split(split: str) -> Iterator[Problem]:
    """Whether the split's name can be a file's name here."""
    if not split.replace("-", "").replace("_", "").isalnum() or len(split) > 20 or not split.isascii():
        yield problem(
            "split", f"“{split}” is no name of a split", "Use letters, digits, - and _, such as test."
        )
