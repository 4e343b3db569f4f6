"""Single-pass inspection of a collection: statistics, checksums, document ids, and all problems.

The topics are the queries that a run has to answer. BEIR's `queries.jsonl` contains the queries of all splits: for MS
MARCO, half a million train queries besides the 6,980 scored ones. Queries that are named only by published judgments
are omitted. Queries without any judgments are topics, so that the topics do not reveal which queries hidden judgments
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
from evaluation.collections.check import FileStatistics, check_corpus, check_document_ids, check_queries, copy_queries
from evaluation.collections.document_ids import DocumentIds
from evaluation.core.files import file_sha256
from evaluation.core.problems import InvalidContent, Problem
from evaluation.judgements.answers import read_answers
from evaluation.judgements.merge import write_judgements
from evaluation.judgements.qrels import Qrels, read_excluded, read_grades, read_qrels
from evaluation.verification.comparing import Judgements
from leaderboard.datasets.problems import in_file, name_some, problem, unknown_ids
from leaderboard.datasets.qrels import JudgementFile, documents_not_in_corpus
from leaderboard.importing.collections.source import CollectionFiles, ImportOptions, Progress, short_name
from leaderboard.results.slices import check_tags


@dataclass(frozen=True, slots=True)
class Topics:
    """The queries to answer; `path` is their file, or None if these are all queries."""

    ids: Collection[str]
    statistics: FileStatistics
    path: Path | None = None


class PlainFile(NamedTuple):
    """An uncompressed file and its SHA-256 checksum."""

    path: Path
    sha256: str


@dataclass(frozen=True, slots=True)
class InspectedCollection:
    """A valid collection.

    `id_list` has one document id per line, and `id_table` is the same set memory-mapped. `origin` contains the
    `source` of the download and the `topic_field` of TREC topics.
    """

    corpus: FileStatistics | None
    queries: FileStatistics
    id_list: Path | None
    id_table: Path | None
    topics: Topics
    answers: PlainFile | None = None
    subtopics: PlainFile | None = None
    judgements: dict[str, JudgementFile] = field(default_factory=dict)
    origin: dict[str, str] = field(default_factory=dict)
    excluded: JudgementFile | None = None

    @property
    def content_sha256(self) -> str:
        """SHA-256 that identifies documents, queries, and exclusions, independent of compression."""
        documents = self.corpus.sha256 if self.corpus else file_sha256(self.id_list) if self.id_list else "none"
        text = f"documents {documents}\nqueries {self.queries.sha256}\n"
        if self.excluded is not None:
            text += f"excluded {self.excluded.sha256}\n"
        return hashlib.sha256(text.encode()).hexdigest()

    def statistics(self) -> dict[str, Any]:
        """Return counts and mean lengths of queries and documents, with sizes, checksums, and excluded pairs.

        `queries` and `words_per_query` cover only the queries to answer, as in Table 1 of the BEIR paper; `all_queries`
        covers all. Without a corpus, document figures are missing.
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
    """A collection during inspection; `problems` contains the problems of all files."""

    def __init__(self, source: CollectionFiles, options: ImportOptions, work: Path, progress: Progress) -> None:
        """Prepare the inspection of a collection in the empty folder `work`; `read` starts it."""
        self.source, self.options, self.work, self.progress = source, options, work, progress
        self.problems: list[Problem] = list(source.problems)
        self.query_ids: set[str] = set()
        self.judgements: dict[str, JudgementFile] = {}
        self.id_table: Path | None = None
        #: Prefix for file names in messages if some of their lines could not be read.
        self.part = ""

    def read(self) -> InspectedCollection:
        """Read and check all files once, and return the valid collection.

        Raises InvalidContent with all problems of all files.
        """
        source, options, work = self.source, self.options, self.work
        query_statistics = corpus = answers = excluded = None
        if source.queries is not None:
            with self._collect_problems():
                query_statistics = check_queries(source.queries, self.query_ids.add, partial(self.progress, "queries"))
        id_list = work / "document-ids.txt"
        with self._collect_problems():
            corpus = self._read_documents(id_list)
        self._build_table(id_list)
        self.part = "" if len(self.problems) == len(source.problems) else "the readable lines of "
        for split in sorted(source.qrels):
            self.progress(f"{split} qrels", 0.0)
            with self._collect_problems(short_name(source.qrels[split].as_posix())):
                self._read_judgements(source.qrels[split], split)
            self.progress(f"{split} qrels", 1.0)
        if options.collecting and options.split in self.judgements:
            self.problems.append(
                problem(
                    "collecting_with_judgements",
                    f"the collection has {options.split} qrels, but --collecting is for datasets without judgments",
                    "Omit --collecting to score runs now, or remove "
                    f"qrels/{options.split}.tsv (qrels.txt) from the collection and import it after the runs.",
                )
            )
        if source.answers is not None:
            with self._collect_problems(source.answers.name):
                answers = self._read_answers(source.answers)
        if source.excluded is not None:
            with self._collect_problems(source.excluded.name):
                excluded = self._read_excluded(source.excluded)
        if source.tags is not None:
            with self._collect_problems(source.tags.name):
                check_tags(source.tags, self.query_ids)
        if self.problems or query_statistics is None or source.queries is None:
            raise InvalidContent.build(*self.problems)
        origin = {"source": options.source, "topic_field": source.topic_field}
        return InspectedCollection(
            corpus=corpus if not options.runs_only else None,
            queries=query_statistics,
            id_list=id_list if self.id_table is not None else None,
            id_table=self.id_table,
            topics=self._find_topics(source.queries, query_statistics),
            answers=answers,
            subtopics=PlainFile(source.subtopics, file_sha256(source.subtopics)) if source.subtopics else None,
            judgements=self.judgements,
            origin={name: value for name, value in origin.items() if value},
            excluded=excluded,
        )

    @contextmanager
    def _collect_problems(self, file_name: str = "") -> Iterator[None]:
        """Add an InvalidContent error's problems to `problems` instead of raising it, with the file's name if given."""
        try:
            yield
        except InvalidContent as error:
            problems = error.report.problems
            self.problems += in_file(file_name, problems) if file_name else problems

    def _read_documents(self, id_list: Path) -> FileStatistics | None:
        """Write the document ids to `id_list`, and return the statistics of the corpus, or None without a corpus."""
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
        """Build the memory-mapped set of the listed ids and set `id_table`, unless the list is empty."""
        if id_list.stat().st_size == 0:
            return
        self.progress("document ids", 0.0)
        with id_list.open(encoding="utf-8") as lines:
            ids = (line.rstrip("\n") for line in lines)
            self.id_table = DocumentIds.build(ids, self.work / "document-ids").path
        self.progress("document ids", 1.0)

    def _read_judgements(self, path: Path, split: str) -> None:
        """Add the split's judgments, with an uncompressed copy of their file and the documents missing in the corpus.

        The copy is rewritten if the verifying reader would read it differently. An empty file is ignored while
        collecting runs. Raises InvalidContent for invalid judgments.
        """
        try:
            qrels = read_qrels(path)
        except InvalidContent as error:
            if self.options.collecting and {problem.code for problem in error.report.problems} == {"empty"}:
                return
            raise
        file = _write_expanded(path, self.work / f"plain-{split}.tsv")
        try:  # compare with the simpler reader that verifies scores
            is_read_alike = Judgements(file.path.read_bytes()).graded == qrels.as_dict()
        except ValueError:
            is_read_alike = False
        if not is_read_alike:
            write_judgements(read_grades(path), file.path)
            file = PlainFile(file.path, file_sha256(file.path))
        missing_documents = self._check_ids(qrels, f"{split} qrels", strict=self.options.strict)
        self.judgements[split] = JudgementFile(qrels, *file, missing_documents)

    def _read_answers(self, path: Path) -> PlainFile:
        """Return an uncompressed copy of the answers.

        Raises InvalidContent for an invalid file, or if a judged query has no answer.
        """
        answers = read_answers(path)
        judgements = self.judgements.get(self.options.split)
        if unanswered_queries := [
            query for query in (judgements.qrels.query_ids if judgements else ()) if query not in answers
        ]:
            queries = "query has" if len(unanswered_queries) == 1 else "queries have"
            message = f"{len(unanswered_queries):,} judged {queries} no answer: {name_some(unanswered_queries)}"
            hint = "Every judged query needs an answer. Remove queries without one from the judgments."
            raise InvalidContent.build(problem("unanswered_query", message, hint, count=len(unanswered_queries)))
        return _write_expanded(path, self.work / "plain-answers.jsonl")

    def _read_excluded(self, path: Path) -> JudgementFile:
        """Return the excluded documents, with an uncompressed copy of their file.

        Adds problems for unknown ids, and for excluded documents that are relevant to their query, because no run could
        retrieve them.
        """
        excluded = JudgementFile(read_excluded(path), *_write_expanded(path, self.work / "plain-excluded.tsv"))
        self._check_ids(excluded.qrels, "excluded.tsv")
        pairs = {(query, document) for query, document, _ in excluded.qrels.judgements()}
        judgements = self.judgements.get(self.options.split)
        relevant_pairs = [
            f"{query} {document}"
            for query, document, grade in (judgements.qrels.judgements() if judgements else ())
            if grade >= (self.options.relevance_level or 1) and (query, document) in pairs
        ]
        if relevant_pairs:
            count_text = f"{len(relevant_pairs):,} {'pair is' if len(relevant_pairs) == 1 else 'pairs are'}"
            message = f"excluded.tsv: {count_text} judged relevant: {name_some(relevant_pairs)}"
            hint = "Remove them from excluded.tsv or from the judgments."
            self.problems.append(problem("excluded_and_relevant", message, hint, count=len(relevant_pairs)))
        return excluded

    def _check_ids(self, qrels: Qrels, name: str, *, strict: bool = False) -> frozenset[str]:
        """Return the documents of `qrels` that are not in the corpus, and add problems with unknown ids.

        Unknown queries are problems. Unknown documents are problems if `strict`, and if all are unknown, because the
        files then belong to different collections. No document is unknown if the collection does not list its
        documents.
        """
        if unknown_queries := [query for query in qrels.query_ids if self.query_ids and query not in self.query_ids]:
            self.problems.append(unknown_ids(name, "query", f"{self.part}queries.jsonl", unknown_queries))
        if self.id_table is None:
            return frozenset()
        missing_documents = documents_not_in_corpus(qrels, DocumentIds.open(self.id_table))
        if missing_documents and (
            strict or len(missing_documents) == len({document for _, document, _ in qrels.judgements()})
        ):
            self.problems.append(unknown_ids(name, "document", f"{self.part}the corpus", missing_documents))
        return frozenset(missing_documents)

    def _find_topics(self, path: Path, queries: FileStatistics) -> Topics:
        """Return all queries except those that only judgments of other splits name, and write them to a file.

        All queries are topics if the scored judgments do not exist yet, because they may judge topics of other splits
        again, and if there are no documents, because such runs were produced for all topics of their track.
        """
        scored_file = self.judgements.get(self.options.split)
        if scored_file is None or self.options.runs_only:
            return Topics(self.query_ids, queries)
        all_judged = {query for judgements in self.judgements.values() for query in judgements.qrels.query_ids}
        topic_ids = self.query_ids - (all_judged - set(scored_file.qrels.query_ids))
        if len(topic_ids) == len(self.query_ids):
            return Topics(self.query_ids, queries)
        target = self.work / "topics.jsonl"
        return Topics(topic_ids, copy_queries(path, topic_ids, target), target)


def _write_expanded(path: Path, target: Path) -> PlainFile:
    """Write an uncompressed copy to `target`, and return it with its checksum."""
    with target.open("wb") as file:
        for block in open_blocks(path):
            file.write(block)
    return PlainFile(target, file_sha256(target))


def check_split(split: str) -> Iterator[Problem]:
    """Yield a problem if the split's name is not a short, safe file name."""
    if not split.replace("-", "").replace("_", "").isalnum() or len(split) > 20 or not split.isascii():
        yield problem(
            "split", f"“{split}” is not a valid split name", "Use letters, digits, - and _, for example: test."
        )
