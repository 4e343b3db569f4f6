"""Run checks and scoring: one pass over the file, then every measure over all queries at once."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from evaluation.archives.compression import FileLimits
from evaluation.collections.beir import read_corpus
from evaluation.collections.document_ids import PROCESS_SEED, DocumentIds, ids_in_memory
from evaluation.core.problems import LINES_NAMED, InvalidContent, InvalidRun, Report, RunStatistics
from evaluation.judgements.answers import Answers, FoundAnswers, find_answers
from evaluation.judgements.labels import Labels
from evaluation.judgements.qrels import Qrels
from evaluation.judgements.responses import STATED_FIGURES, score_responses
from evaluation.judgements.subtopics import SubtopicGrades, Subtopics
from evaluation.kernel.layout import NO_IDS, Ids, pad_text
from evaluation.kernel.library import NO_JUDGEMENTS, Judged
from evaluation.measures.formulas import JudgedRankings, ResponseScore
from evaluation.measures.registry import Measure, parse_measure
from evaluation.runs.problems import EMPTY, NOT_AN_ANSWER_RUN, RunContents, RunFacts
from evaluation.runs.top_documents import cut_lines, displayed_documents, ranked_documents
from evaluation.runs.trec_run import Progress, ReadingTask, read_run
from evaluation.verification.comparing import ClaimedScores


@dataclass(frozen=True)
class ScoringTarget:
    """Queries, qrels, and rules that runs are checked and scored against.

    Reuse a target (or its qrels) for several runs, because its lookup tables are built once.

    Attributes:
        query_ids: All queries of the dataset, judged or not. If empty, any query is accepted, in addition to the
            queries of the qrels.
        document_ids: Ids of the corpus, or None to accept any document.
        hidden: Whether reports conceal which queries and documents are judged.
        names_queries: Whether reports may name missing queries, because the dataset's queries are public.
        example_document: Id of a document of the corpus that reports may show, because the documents are public.
        relevance_level: Lowest grade that counts as relevant in binary measures.
        drop_self_matches: Whether to drop a document with the query's own id, before the cut to `maximum_depth`.
        maximum_depth: Number of documents per query that are scored.
        candidates_only: Whether to skip documents that are not judged for the query.
        excluded: Documents to drop from a query's ranking before the cut, in the form of qrels.
        measures: Measures with cutoffs that a report compares with the depth of a run.
        answers: Answers by query, for measures of answers.
        labels: Labels of answers, for measures of judges.
        corpus: Corpus file, for measures that read texts.
        subtopics: Judgments by subtopic, for measures of novelty and diversity.
    """

    qrels: Qrels | None = None
    query_ids: Collection[str] = ()
    document_ids: DocumentIds | None = None
    hidden: bool = True
    names_queries: bool = False
    example_document: str = ""
    relevance_level: int = 1
    drop_self_matches: bool = False
    maximum_depth: int = 1000
    candidates_only: bool = False
    excluded: Qrels | None = None
    measures: tuple[str, ...] = ()
    answers: Mapping[str, Answers] | None = None
    labels: Labels | None = None
    corpus: Path | None = None
    subtopics: SubtopicGrades | None = None
    _elsewhere: dict[int, Ids] = field(default_factory=dict, repr=False, compare=False)

    @property
    def seed(self) -> int:
        """Hash seed shared by all tables that are used together."""
        return self.document_ids.seed if self.document_ids is not None else PROCESS_SEED

    @cached_property
    def known_queries(self) -> list[bytes]:
        """All queries of the dataset and the qrels, sorted."""
        judged_queries = self.qrels.query_ids if self.qrels else ()
        return sorted({query.encode() for query in (*self.query_ids, *judged_queries)})

    @cached_property
    def judged_rows(self) -> NDArray[np.int32]:
        """Row in the qrels of every known query, or -1."""
        return self._get_rows(self.qrels)

    def _get_rows(self, qrels: Qrels | None) -> NDArray[np.int32]:
        """Return the row in `qrels` of every known query, or -1 if it has none."""
        if not qrels:
            return np.full(len(self.known_queries), -1, np.int32)
        rows = {query.encode(): row for row, query in enumerate(qrels.query_ids)}
        return np.array([rows.get(query, -1) for query in self.known_queries], np.int32)

    @cached_property
    def _excluded(self) -> Judged:
        if self.excluded is None:
            return NO_JUDGEMENTS
        return Judged(self._get_rows(self.excluded), self.excluded.table(self.seed))

    @cached_property
    def _aligned_subtopics(self) -> Subtopics | None:
        return Subtopics.align(self.subtopics, self.qrels) if self.subtopics and self.qrels else None

    @cached_property
    def _query_text(self) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        offsets = np.cumsum([0, *map(len, self.known_queries)], dtype=np.int64)
        return pad_text(b"".join(self.known_queries)), offsets

    def reading_task(self, with_qrels: bool, elsewhere_depth: int = 0, first_documents: int = 0) -> ReadingTask:
        """Return the task for the reader of runs.

        If `elsewhere_depth` is not 0, the reader also records documents judged for other queries, down to this rank.
        `first_documents` is the number of each query's first documents to collect.
        """
        text, offsets = self._query_text
        qrels = self.qrels if with_qrels else None
        return ReadingTask(
            text,
            offsets,
            self.seed,
            self.maximum_depth,
            judged=Judged(self.judged_rows, qrels.table(self.seed)) if qrels else NO_JUDGEMENTS,
            judgements=(qrels.pool or qrels).number_of_judgements if qrels else 0,
            documents=self.document_ids.table if self.document_ids is not None else None,
            elsewhere=self._judged_anywhere(qrels) if qrels and elsewhere_depth else NO_IDS,
            elsewhere_depth=min(elsewhere_depth, self.maximum_depth) if qrels else 0,
            drop_self_matches=self.drop_self_matches,
            first_documents=first_documents,
            excluded=self._excluded,
        )

    def capped_measures(self, depth: int) -> tuple[str, ...]:
        """Return the measures that read more documents than the longest ranking contains, if the corpus has more."""
        if self.candidates_only or not depth:
            return ()
        available = self.maximum_depth if self.document_ids is None else len(self.document_ids)
        reachable = min(self.maximum_depth, available)
        return tuple(name for name in self.measures if depth < min(parse_measure(name).depth, reachable))

    def _judged_anywhere(self, qrels: Qrels) -> Ids:
        """Return the set of documents that are judged for any query, built once per hash seed."""
        if self.seed not in self._elsewhere:
            documents = qrels.documents.tobytes()
            self._elsewhere[self.seed] = ids_in_memory(documents, qrels.document_offsets, self.seed)
        return self._elsewhere[self.seed]

    def answer_depth(self, measure: Measure) -> int:
        """Return the maximum number of texts that the measure reads. Raises ValueError if the target has no texts."""
        if not measure.family.reads_texts or measure.cutoff is None:
            return 0
        if self.answers is None or self.corpus is None:
            raise ValueError(f"{measure} needs the answers and the corpus")
        depth = self.maximum_depth if measure.family.unit else min(measure.cutoff, self.maximum_depth)
        return depth + self.drop_self_matches

    def find_answers(self, first_lines: bytes, qrels: Qrels, depth: int) -> FoundAnswers:
        """Return the position of the first answer in each judged query's ranking, found in the texts of the corpus.

        `first_lines` contains the first `depth` documents of each query, as the reader of runs returns them. Raises
        EndlessPattern.
        """
        assert self.answers is not None
        assert self.corpus is not None
        drop_self = self.drop_self_matches
        rankings = {
            query: displayed_documents(documents, query, depth=depth - drop_self, drop_self_matches=drop_self)
            for query, documents in ranked_documents(first_lines)
        }
        return find_answers(qrels.query_ids, rankings, self.answers, read_corpus(self.corpus))

    def rankings(self, contents: RunContents, qrels: Qrels) -> JudgedRankings:
        """Return the judged rankings, with the reader's query numbers translated to rows of the qrels.

        If the target has only candidates, documents that are not judged for the query are omitted and the ranks counted
        again.
        """
        rows = self.judged_rows
        row = rows[contents.query].astype(np.int64)
        # The kernel returns judgment numbers instead of grades (`Qrels.table`).
        rank, number = contents.rank.astype(np.int64), contents.grade.astype(np.int64)
        order = np.argsort(row, kind="stable")
        row, rank, number = row[order], rank[order], number[order]
        is_judged = (number >= 0) & (number < qrels.number_of_judgements)
        retrieved = np.zeros(len(qrels.query_ids), np.int64)
        retrieved[rows[rows >= 0]] = contents.retrieved[rows >= 0]
        if self.candidates_only:
            row, rank, number = row[is_judged], rank[is_judged], number[is_judged]
            is_judged = is_judged[is_judged]
            retrieved = np.bincount(row, minlength=len(retrieved))
            rank = np.arange(1, len(row) + 1) - (np.cumsum(retrieved) - retrieved)[row]
        is_elsewhere = (number < 0) | (number > qrels.number_of_judgements)
        return JudgedRankings(
            qrels,
            row[is_judged],
            rank[is_judged],
            qrels.grades[number[is_judged]].astype(np.int64),
            row[is_elsewhere],
            rank[is_elsewhere],
            retrieved,
            self.relevance_level,
            judgement_number=number[is_judged],
            pooled=np.stack([row, rank])[:, number >= qrels.number_of_judgements],
            subtopics=self._aligned_subtopics,
        )

    def with_responses(self, rankings: JudgedRankings, contents: RunContents) -> JudgedRankings:
        """Return the rankings of an answer run with its citations and the scores of its responses.

        Raises EndlessPattern.
        """
        assert contents.responses is not None
        scores = score_responses(rankings.qrels.query_ids, contents.responses, self.answers, self.labels, self.hidden)
        citations = self.rankings(contents.citations or contents, rankings.qrels)
        return replace(rankings, response_scores=scores, citations=citations)

    def report(self, contents: RunContents, limits: FileLimits) -> Report:
        """Return the report on a run that was read: its problems and statistics."""
        judged_only = self.qrels is not None and not self.hidden
        is_expected = self.judged_rows >= 0 if judged_only else np.ones(len(self.known_queries), np.bool_)
        missing_places = np.flatnonzero(is_expected & ~contents.seen)
        # The qrels of a hidden target may contain queries that its query file lacks. Their ids are never shown.
        missing_ids = (self.known_queries[index].decode() for index in missing_places)
        nameable_ids = (query for query in missing_ids if not self.hidden or query in self.query_ids)
        facts = RunFacts(
            contents,
            missing_queries=len(missing_places),
            missing_ids=tuple(islice(nameable_ids, LINES_NAMED)) if self.names_queries else (),
            expected_queries=int(np.count_nonzero(is_expected)),
            expects_judged_only=judged_only,
            maximum_depth=self.maximum_depth,
            example_document=self.example_document,
            capped_measures=() if contents.ranks_citations else self.capped_measures(contents.depth),
        )
        statistics = RunStatistics(
            contents.lines,
            contents.queries,
            contents.known_queries,
            contents.depth,
            contents.expanded_bytes,
            contents.tags,
            contents.metadata,
        )
        problems = facts.problems(limits, self.hidden)
        if contents.responses is None and self.measures and parse_measure(self.measures[0]).family.reads_responses:
            message = NOT_AN_ANSWER_RUN.message.format(measure=self.measures[0])
            problems = (*problems, NOT_AN_ANSWER_RUN.problem(message))
        return Report(problems, statistics)


@dataclass(frozen=True)
class ScoredRun:
    """Scores of a run.

    Attributes:
        query_ids: The judged queries, sorted by their bytes.
        measures: The requested measures that the run allows.
        per_query: Unrounded float64 scores of shape (queries, measures).
        means: Mean over all judged queries, by the measure's canonical name.
        missing_queries: Number of judged queries without documents, or without a response in an answer run. They score
            0 on every measure.
        first_documents: First documents of the dataset's queries if requested, as `evaluation.runs.top_documents` reads
            them.
        omitted_measures: Reasons why the run does not allow the other requested measures, by name.
    """

    report: Report
    measures: tuple[Measure, ...]
    query_ids: tuple[str, ...]
    per_query: NDArray[np.float64]
    means: dict[str, float]
    missing_queries: int
    first_documents: bytes = b""
    omitted_measures: Mapping[str, str] = field(default_factory=dict)

    def as_claimed_scores(self) -> ClaimedScores:
        """Return the scores in the form that verification compares."""
        return ClaimedScores(
            [measure.verified() for measure in self.measures],
            self.query_ids,
            self.per_query,
            self.means,
            self.missing_queries,
            self.report.statistics.lines,
        )


def _omission_reason(measure: Measure, rankings: JudgedRankings, has_answers: bool) -> str:
    """Return why a run does not allow a measure, or an empty string: only answer runs have responses and figures."""
    scores, formula = rankings.response_scores, measure.family.formula
    if not measure.family.reads_responses:
        return ""
    if scores is None:
        return "the run is a ranking without answers"
    if not isinstance(formula, ResponseScore) or formula.measure in scores:
        return ""
    if measure.family.parameter:
        return "no judge of this name has labeled all answers"
    figure = STATED_FIGURES.get(formula.measure, "confidence" if has_answers else "")
    return f"not every response states `{figure}`" if figure else "there are no correct answers to compare with"


def check_run(
    path: Path | str | bytes,
    target: ScoringTarget,
    limits: FileLimits | None = None,
    progress: Progress | None = None,
) -> Report:
    """Return every problem of a run file, and its statistics, without scoring it.

    `progress` is called with the share read and may raise to stop. A file that cannot be read is an error in the
    report.
    """
    limits = limits or FileLimits()
    try:
        return target.report(read_run(path, target.reading_task(with_qrels=False), limits, progress), limits)
    except InvalidContent as error:
        return error.report


def score_run(
    path: Path | str | bytes,
    target: ScoringTarget,
    measures: Iterable[Measure | str],
    limits: FileLimits | None = None,
    progress: Progress | None = None,
    *,
    first_documents: int = 0,
    may_be_empty: bool = False,
) -> ScoredRun:
    """Parse, check, and score a run in one pass.

    If `first_documents` is not 0, the result includes this number of each query's first documents. If `may_be_empty` is
    set, a run without lines scores 0, as for a search without results. `progress` is called between blocks with the
    share of the file read, from 0 to 1, and may raise to stop.

    Raises:
        InvalidRun: `check_run` would report an error.
        EndlessPattern: The search for an answer pattern takes too long.
        ValueError: The target has no qrels, or lacks the answers, texts, or subtopics that a measure needs.
    """
    if target.qrels is None:
        raise ValueError("scoring needs a target with qrels")
    limits = limits or FileLimits()
    parsed_measures = tuple(parse_measure(measure) if isinstance(measure, str) else measure for measure in measures)
    depths = [measure.cutoff or 0 for measure in parsed_measures if measure.family.looks_elsewhere]
    answer_depth = max((target.answer_depth(measure) for measure in parsed_measures), default=0)
    task = target.reading_task(
        with_qrels=True,
        elsewhere_depth=max(depths, default=0),
        first_documents=max(first_documents, answer_depth),
    )
    try:
        contents = read_run(path, task, limits, progress)
    except InvalidContent as error:
        raise InvalidRun(error.report) from error
    report = target.report(contents, limits)
    if may_be_empty and {problem.code for problem in report.errors} == {EMPTY}:  # Damaged lines are separate errors.
        report = replace(report, problems=())
    if not report.valid:
        raise InvalidRun(report)
    rankings, first = target.rankings(contents, target.qrels), contents.first_documents
    if contents.responses is not None:
        rankings = target.with_responses(rankings, contents)
    reasons = {each.name: _omission_reason(each, rankings, target.answers is not None) for each in parsed_measures}
    parsed_measures = tuple(measure for measure in parsed_measures if not reasons[measure.name])
    if answer_depth:
        rankings = replace(rankings, answers=target.find_answers(first, target.qrels, answer_depth))
        first = cut_lines(first, first_documents)
    values = np.column_stack(
        [measure.values(rankings) for measure in parsed_measures] or [np.zeros((rankings.queries, 0))]
    )
    means = {measure.name: float(column.mean()) for measure, column in zip(parsed_measures, values.T, strict=True)}
    if contents.responses is None:
        missing_queries = int(np.count_nonzero(rankings.retrieved == 0))
    else:
        missing_queries = sum(query not in contents.responses for query in target.qrels.query_ids)
    omitted = {name: reason for name, reason in reasons.items() if reason}
    return ScoredRun(report, parsed_measures, target.qrels.query_ids, values, means, missing_queries, first, omitted)
