"""Twins: an open and a hidden half of a collection's topics, imported as two datasets in one transaction."""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

import orjson
from django.db import transaction

from evaluation.archives.compression import open_blocks
from evaluation.collections.beir import read_queries
from evaluation.collections.check import check_corpus
from evaluation.collections.other_formats import write_excluded
from evaluation.core.problems import InvalidContent, Problem
from evaluation.engines import Resources, RetrievalTask, retrieve
from evaluation.judgements.answers import read_answers
from evaluation.judgements.merge import write_judgements
from evaluation.judgements.qrels import read_excluded, read_grades, read_qrels
from evaluation.judgements.splits import draw_halves, relevant_counts
from evaluation.judgements.subtopics import read_subtopics, write_subtopics
from evaluation.runs.score import ScoringTarget, score_run
from leaderboard.core.storage.store import work_folder
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import CollectionFiles, ImportOptions, Progress, open_source
from leaderboard.importing.collections.twins import MIN_TOPICS, check_opened_topics, too_few
from leaderboard.models import Dataset
from leaderboard.results.measures import check_inputs, check_measures

#: Suffixes of the slug and the name of the hidden half.
SUFFIX, NAME_SUFFIX = "-hidden", " (hidden half)"
#: Default measure for balancing the halves by their BM25 scores.
_PRIMARY = "nDCG@10"
#: Half of each judged topic: 0 for the open half, 1 for the hidden one.
Halves = Mapping[str, int]


def import_twin(
    path: Path,
    options: ImportOptions,
    share: float,
    seed: int,
    progress: Progress = lambda stage, share: None,
) -> tuple[ImportResult, ImportResult]:
    """Import a share of the judged topics at `path` as an open dataset, and the others as a hidden one.

    The hidden dataset has the same slug with SUFFIX. Topics that only other splits judge are omitted from both. Raises
    the same exceptions as `import_dataset`; nothing is changed in that case.
    """
    if problems := list(_check_options(options, share)):
        raise InvalidContent.build(*problems)
    name, slug = options.name or options.slug, options.slug + SUFFIX
    with work_folder("twin") as work, open_source(path, options, work, progress) as source:
        problems = list(source.problems)
        measures, has_texts = [options.primary or _PRIMARY, *options.measures], source.corpus is not None
        inputs = {"has_answers": source.answers is not None, "has_subtopics": source.subtopics is not None}
        problems += check_inputs(measures, has_texts=has_texts, **inputs)
        if problems:
            raise InvalidContent.build(*problems)
        if source.topic_field:  # the halves contain queries instead of topics
            origin = f"{options.source or 'TREC topics'}, the {source.topic_field} of each topic"
            options = replace(options, topic_field=None, source=origin)
        open_options = replace(options, hidden=False, protection=None, public_share=None)
        hidden_half = replace(options, hidden=True, slug=slug, name=name + NAME_SUFFIX, twin_of=options.slug)
        halves = _draw_halves(source, options, share, seed, work, progress)
        # Check this before the transaction, because an error would roll back the record of the comparison.
        corpus = check_corpus(_require_path(source.corpus), lambda identifier: None).sha256
        open_topics = [query for query, half in halves.items() if half == 0]
        if problems := list(check_opened_topics(corpus, open_topics, options.slug, slug)):
            raise InvalidContent.build(*problems)
        folders = [_write_half(source, options.split, half, work / f"half-{half}", halves) for half in (0, 1)]
        with transaction.atomic():
            return import_dataset(folders[0], open_options, progress), import_dataset(folders[1], hidden_half, progress)


def _check_options(options: ImportOptions, share: float) -> Iterator[Problem]:
    """Yield a problem for an invalid share, invalid measures, options that twins lack, and each existing half."""
    if not 0 < share < 1:
        yield problem("twin_share", f"{share:g} is not between 0 and 1", "Enter --twin 0.5 for equal halves.")
    yield from check_measures(options.primary or _PRIMARY, options.measures, hidden=True)
    if options.hidden is not None or options.twin_of or options.runs_only or options.collecting:
        yield problem(
            "twin_options",
            "a twin has one open and one hidden half, with documents and judgments",
            "Leave out --open, --hidden, --twin-of, --runs-only and --collecting.",
        )
    known_halves = Dataset.objects.filter(slug__in=(options.slug, options.slug + SUFFIX)).exclude(current_version=None)
    for name in known_halves.values_list("name", flat=True):
        yield problem(
            "twin_drawn",
            f"{name} already exists, and another draw could open hidden topics",
            "Import each half separately to update it, or choose another slug.",
        )


def _draw_halves(
    source: CollectionFiles, options: ImportOptions, share: float, seed: int, work: Path, progress: Progress
) -> Halves:
    """Return the half of each judged topic: 0 for the open half, 1 for the hidden one.

    The draw is random, but balanced by BM25 scores and numbers of relevant documents. BM25 is retrieved and scored for
    this. Raises InvalidContent if a half would have too few topics.
    """
    judgements = source.qrels[options.split]
    qrels = read_qrels(judgements)
    smaller_half = int(min(share, 1 - share) * len(qrels.query_ids))
    if smaller_half < MIN_TOPICS:
        raise InvalidContent.build(too_few("smaller", smaller_half))
    topics, run = work / "judged.jsonl", work / "bm25.txt"
    _write_queries(_require_path(source.queries), topics, set(qrels.query_ids).__contains__)
    level, drop = options.relevance_level or 1, bool(options.drop_self_matches)
    resources = Resources(language=options.language or "en")
    task = RetrievalTask(
        "bm25", _require_path(source.corpus), topics, run,
        drop_self_matches=drop, excluded=source.excluded, work_folder=work, resources=resources,
    )  # fmt: skip
    retrieve(task, progress)
    target = ScoringTarget(
        qrels,
        relevance_level=level,
        drop_self_matches=drop,
        excluded=read_excluded(source.excluded) if source.excluded else None,
        answers=read_answers(source.answers) if source.answers else None,
        corpus=source.corpus,
        subtopics=read_subtopics(source.subtopics) if source.subtopics else None,
    )
    bm25_scores = score_run(run, target, [options.primary or _PRIMARY], may_be_empty=True)
    scores = bm25_scores.per_query[:, 0].tolist()
    # The key includes the judgments, so that the draw cannot be repeated without them by trying seeds.
    key = hashlib.sha256(b"".join([b"%d\n" % seed, *open_blocks(judgements)])).digest()
    bm25 = dict(zip(qrels.query_ids, scores, strict=True))
    open_topics = draw_halves(relevant_counts(qrels, level), bm25, share, key)
    return {query: int(query not in open_topics) for query in qrels.query_ids}


def _write_half(source: CollectionFiles, split: str, half: int, folder: Path, halves: Halves) -> Path:
    """Write one half of a collection to `folder`, and return the folder.

    It has the whole corpus, the half's topics with their judgments, answers, and subtopics, and topics that no split
    judges.
    """
    other_queries = [read_qrels(path).query_ids for name, path in source.qrels.items() if name != split]
    foreign_queries = {query for queries in other_queries for query in queries}
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").symlink_to(_require_path(source.corpus).absolute())

    def is_included(query: str) -> bool:
        return halves[query] == half if query in halves else query not in foreign_queries

    _write_queries(_require_path(source.queries), folder / "queries.jsonl", is_included)
    if source.excluded is not None:
        pairs = read_excluded(source.excluded).judgements()
        kept_pairs = ((query, document) for query, document, _ in pairs if is_included(query))
        write_excluded(folder / "excluded.tsv", kept_pairs)
    if source.answers:
        with (folder / "answers.jsonl").open("wb") as file:
            for line in b"".join(open_blocks(source.answers)).splitlines():
                if line.strip() and halves.get(str(orjson.loads(line)["_id"])) == half:
                    file.write(line + b"\n")
    if source.subtopics:
        subtopics = read_subtopics(source.subtopics).items()
        half_subtopics = {query: graded for query, graded in subtopics if halves.get(query.decode()) == half}
        write_subtopics(half_subtopics, folder / "subtopic-qrels.txt")
        return folder
    grades = read_grades(source.qrels[split])
    half_grades = {query: graded for query, graded in grades.items() if halves.get(query.decode()) == half}
    write_judgements(half_grades, folder / "qrels" / f"{split}.tsv")
    return folder


def _require_path(path: Path | None) -> Path:
    if path is None:
        raise ValueError("a source without problems has documents and queries")
    return path


def _write_queries(source: Path, target: Path, is_included: Callable[[str], bool]) -> None:
    """Write the queries that `is_included` accepts, by id, as JSON lines."""
    with target.open("w", encoding="utf-8") as file:
        for query in read_queries(source):
            if is_included(query.id):
                file.write(json.dumps({"_id": query.id, "text": query.text}, ensure_ascii=False) + "\n")
