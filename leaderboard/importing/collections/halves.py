"""Draw a twin: an open and a hidden half of a collection's topics, imported as two datasets in one transaction."""

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
from evaluation.runs.score import ScoringTarget, score_run
from leaderboard.core.storage.store import work_folder
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import CollectionFiles, ImportOptions, Progress, open_source
from leaderboard.importing.collections.twins import LEAST_TOPICS, check_opened_topics, too_few
from leaderboard.models import Dataset
from leaderboard.results.measures import check_measures, check_reads_texts

#: What follows the slug and the name of the hidden half.
SUFFIX, NAME_SUFFIX = "-hidden", " (hidden half)"
#: The measure whose values of BM25 the halves are to share alike, where none was chosen.
_PRIMARY = "nDCG@10"
#: By judged topic, 0 for the open half and 1 for the hidden one.
Halves = Mapping[str, int]


def import_twin(
    path: Path,
    options: ImportOptions,
    share: float,
    seed: int,
    progress: Progress = lambda stage, share: None,
) -> tuple[ImportResult, ImportResult]:
    """Import the collection at `path` as an open dataset with this share of the judged topics, and a hidden one.

    The second has the slug of the first with SUFFIX. Topics that only other splits judge are left out of both. Raises
    as `import_dataset`; nothing is then changed.
    """
    if problems := list(_check(options, share)):
        raise InvalidContent.of(*problems)
    name, slug = options.name or options.slug, options.slug + SUFFIX
    with work_folder("twin") as work, open_source(path, options, work, progress) as source:
        problems = list(source.problems)
        if source.answers is None:
            problems += check_reads_texts([options.primary or _PRIMARY, *options.measures])
        if problems:
            raise InvalidContent.of(*problems)
        if source.topic_field:  # the halves have its queries, and no topics any more
            origin = f"{options.source or 'TREC topics'}, the {source.topic_field} of each topic"
            options = replace(options, topic_field=None, source=origin)
        public = replace(options, hidden=False, protection=None, public_share=None)
        hidden = replace(options, hidden=True, slug=slug, name=name + NAME_SUFFIX, twin_of=options.slug)
        drawn = _draw(source, options, share, seed, work, progress)
        # Before the transaction, because a refusal would roll back the record of the comparison.
        corpus = check_corpus(_given(source.corpus), lambda identifier: None).sha256
        opened = [query for query, half in drawn.items() if half == 0]
        if problems := list(check_opened_topics(corpus, opened, options.slug, slug)):
            raise InvalidContent.of(*problems)
        folders = [_write_half(source, options.split, half, work / f"half-{half}", drawn) for half in (0, 1)]
        with transaction.atomic():
            return import_dataset(folders[0], public, progress), import_dataset(folders[1], hidden, progress)


def _check(options: ImportOptions, share: float) -> Iterator[Problem]:
    if not 0 < share < 1:
        yield problem("twin_share", f"{share:g} is no share of the topics", "Say --twin 0.5 for halves.")
    yield from check_measures(options.primary or _PRIMARY, options.measures, hidden=True)
    if options.hidden is not None or options.twin_of or options.runs_only or options.collecting:
        yield problem(
            "twin_options",
            "a twin has one open and one hidden half, with documents and judgements",
            "Leave out --open, --hidden, --twin-of, --runs-only and --collecting.",
        )
    known = Dataset.objects.filter(slug__in=(options.slug, options.slug + SUFFIX)).exclude(
        current_version=None
    )
    for slug in known.values_list("slug", flat=True):
        yield problem(
            "twin_drawn",
            f"{slug} is there already, and another draw could open hidden topics",
            "Import each half by itself to bring it up to date, or choose another slug.",
        )


def _draw(
    source: CollectionFiles, options: ImportOptions, share: float, seed: int, work: Path, progress: Progress
) -> Halves:
    """Which half each judged topic is in."""
    judgements = source.qrels[options.split]
    qrels = read_qrels(judgements)
    smaller = int(min(share, 1 - share) * len(qrels.query_ids))
    if smaller < LEAST_TOPICS:
        raise InvalidContent.of(too_few("smaller", smaller))
    topics, run = work / "judged.jsonl", work / "bm25.txt"
    _write_queries(_given(source.queries), topics, set(qrels.query_ids).__contains__)
    level, drop = options.relevance_level or 1, bool(options.drop_self_matches)
    resources = Resources(language=options.language or "en")
    task = RetrievalTask(
        "bm25", _given(source.corpus), topics, run,
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
    )
    measured = score_run(run, target, [options.primary or _PRIMARY], may_be_empty=True)
    scores = measured.per_query[:, 0].tolist()
    # With the judgements in the key nobody without them can repeat the draw, however few seeds there are to try.
    key = hashlib.sha256(b"".join([b"%d\n" % seed, *open_blocks(judgements)])).digest()
    bm25 = dict(zip(qrels.query_ids, scores, strict=True))
    public = draw_halves(relevant_counts(qrels, level), bm25, share, key)
    return {query: int(query not in public) for query in qrels.query_ids}


def _write_half(source: CollectionFiles, split: str, half: int, folder: Path, drawn: Halves) -> Path:
    """Return a collection of one half: its judgements, its topics, and those that nobody judged."""
    others = [read_qrels(path).query_ids for name, path in source.qrels.items() if name != split]
    elsewhere = {query for queries in others for query in queries}
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").symlink_to(_given(source.corpus).absolute())

    def wanted(query: str) -> bool:
        return drawn[query] == half if query in drawn else query not in elsewhere

    _write_queries(_given(source.queries), folder / "queries.jsonl", wanted)
    if source.excluded is not None:
        pairs = read_excluded(source.excluded).judgements()
        kept_pairs = ((query, document) for query, document, _ in pairs if wanted(query))
        write_excluded(folder / "excluded.tsv", kept_pairs)
    if source.answers:
        with (folder / "answers.jsonl").open("wb") as file:
            for line in b"".join(open_blocks(source.answers)).splitlines():
                if line.strip() and drawn.get(str(orjson.loads(line)["_id"])) == half:
                    file.write(line + b"\n")
    grades = read_grades(source.qrels[split])
    kept = {query: graded for query, graded in grades.items() if drawn.get(query.decode()) == half}
    write_judgements(kept, folder / "qrels" / f"{split}.tsv")
    return folder


def _given(path: Path | None) -> Path:
    if path is None:
        raise ValueError("a source without problems has documents and queries")
    return path


def _write_queries(source: Path, target: Path, wanted: Callable[[str], bool]) -> None:
    with target.open("w", encoding="utf-8") as file:
        for query in read_queries(source):
            if wanted(query.id):
                file.write(json.dumps({"_id": query.id, "text": query.text}, ensure_ascii=False) + "\n")
