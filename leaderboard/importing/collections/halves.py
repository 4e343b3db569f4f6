"""Draw a twin: an open and a hidden half of a collection's topics, imported as two datasets in one transaction."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from pathlib import Path

from django.db import transaction

from evaluation.collections.beir import read_queries
from evaluation.core.errors import InvalidContent
from evaluation.core.problems import Problem
from evaluation.engines import Resources, retrieve
from evaluation.judgements.merge import write_judgements
from evaluation.judgements.qrels import read_grades, read_qrels
from evaluation.judgements.splits import draw_halves, relevant_counts
from evaluation.runs.score import ScoringTarget, score_run
from leaderboard.core.storage.store import work_folder
from leaderboard.datasets.problems import problem
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.options import ImportOptions
from leaderboard.importing.collections.source import CollectionFiles, Progress, open_source
from leaderboard.importing.collections.twins import LEAST_TOPICS, too_few
from leaderboard.models import Dataset

#: What follows the slug and the name of the hidden half.
SUFFIX, NAME_SUFFIX = "-hidden", " (hidden half)"


def import_twin(
    path: Path,
    options: ImportOptions,
    share: float,
    seed: int,
    progress: Progress = lambda stage, share: None,
) -> tuple[ImportResult, ImportResult]:
    """Import the collection at `path` as an open dataset with this share of the judged topics, and a hidden one.

    The second has the slug of the first with SUFFIX. Topics that are judged by other splits alone are left out of
    both. Raises as `import_dataset`; nothing is then changed.
    """
    if problems := list(_check(options, share)):
        raise InvalidContent.of(*problems)
    with work_folder("twin") as work, open_source(path, options, work, progress) as source:
        if source.problems:
            raise InvalidContent.of(*source.problems)
        open_half, hidden_half = _draw(source, options, share, seed, work, progress)
        name = options.name or options.slug
        halves = (
            (open_half, hidden_half, replace(options, hidden=False, protection=None, public_share=None)),
            (
                hidden_half,
                open_half,
                replace(
                    options,
                    slug=options.slug + SUFFIX,
                    name=name + NAME_SUFFIX,
                    hidden=True,
                    twin_of=options.slug,
                ),
            ),
        )
        with transaction.atomic():
            public, hidden = (
                import_dataset(_write_half(source, options, own, others, work / each.slug), each, progress)
                for own, others, each in halves
            )
    return public, hidden


def _check(options: ImportOptions, share: float) -> Iterator[Problem]:
    if not 0 < share < 1:
        yield problem("twin_share", f"{share:g} is no share of the topics", "Say --twin 0.5 for halves.")
    if options.hidden is not None or options.twin_of or options.runs_only or options.collecting:
        yield problem(
            "twin_options",
            "a twin has one open and one hidden half, with documents and judgements",
            "Leave out --open, --hidden, --twin-of, --runs-only and --collecting.",
        )
    slugs = (options.slug, options.slug + SUFFIX)
    for slug in (
        Dataset.objects.filter(slug__in=slugs).exclude(current_version=None).values_list("slug", flat=True)
    ):
        yield problem(
            "twin_drawn",
            f"{slug} is there already, and another draw could open hidden topics",
            "Import each half by itself to bring it up to date, or choose another slug.",
        )


def _draw(
    source: CollectionFiles, options: ImportOptions, share: float, seed: int, work: Path, progress: Progress
) -> tuple[set[str], set[str]]:
    """The judged topics of the open half and those of the hidden one."""
    if source.corpus is None or source.queries is None:
        raise ValueError("a source without problems has documents and queries")
    judgements = source.qrels[options.split]
    qrels = read_qrels(judgements)
    judged = set(qrels.query_ids)
    wanted = min(share, 1 - share) * len(judged)
    if wanted < LEAST_TOPICS:
        raise InvalidContent.of(too_few("smaller", int(wanted)))
    topics, run = work / "judged.jsonl", work / "bm25.txt"
    _write_queries(source.queries, topics, judged.__contains__)
    level, drop = options.relevance_level or 1, bool(options.drop_self_matches)
    retrieve(
        "bm25", source.corpus, topics, run,
        drop_self_matches=drop, progress=progress, work_folder=work,
        resources=Resources(language=options.language or "en"),
    )  # fmt: skip
    target = ScoringTarget(qrels, relevance_level=level, drop_self_matches=drop)
    scores = score_run(run, target, [options.primary or "nDCG@10"]).per_query[:, 0]
    # With the judgements in the key nobody without them can repeat the draw, however few seeds there are to try.
    key = hashlib.sha256(b"%d\n" % seed + judgements.read_bytes()).digest()
    bm25 = dict(zip(qrels.query_ids, scores.tolist(), strict=True))
    public = draw_halves(relevant_counts(qrels, level), bm25, share, key)
    return public, judged - public


def _write_half(
    source: CollectionFiles,
    options: ImportOptions,
    own: Collection[str],
    others: Collection[str],
    folder: Path,
) -> Path:
    """A collection of one half: its judgements, its topics, and those that nobody judged."""
    if source.corpus is None or source.queries is None:
        raise ValueError("a source without problems has documents and queries")
    elsewhere = {
        query
        for split, path in source.qrels.items()
        if split != options.split
        for query in read_qrels(path).query_ids
    }
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").symlink_to(source.corpus.absolute())
    left_out = elsewhere.union(others).difference(own)
    _write_queries(source.queries, folder / "queries.jsonl", lambda query: query not in left_out)
    grades = read_grades(source.qrels[options.split])
    kept = {query: graded for query, graded in grades.items() if query.decode() in own}
    write_judgements(kept, folder / "qrels" / f"{options.split}.tsv")
    return folder


def _write_queries(source: Path, target: Path, wanted: Callable[[str], bool]) -> None:
    with target.open("w", encoding="utf-8") as file:
        for query in read_queries(source):
            if wanted(query.id):
                file.write(json.dumps({"_id": query.id, "text": query.text}, ensure_ascii=False) + "\n")
