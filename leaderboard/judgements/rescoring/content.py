"""What comes with other judgements beside numbers: topics that a run is to answer too, and files where all is open.

Made by the scorer before the board is switched, since it takes as long as reading the files.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evaluation.collections.beir import read_queries
from evaluation.collections.check import copy_queries
from leaderboard.core.storage.store import Area, local_path, work_folder
from leaderboard.datasets import files
from leaderboard.datasets.qrels import load_qrels, open_qrels_path
from leaderboard.models import Dataset, DatasetFile, DatasetVersion, Qrels


@dataclass(frozen=True, slots=True)
class OfferedContent:
    """Keys of the store. `topics_sha256` and `statistics` are empty where the topics stay; `judgements_sha256` where
    the judgements are not everyone's."""

    topics_sha256: str = ""
    statistics: dict[str, Any] = field(default_factory=dict)
    judgements_sha256: str = ""

    @classmethod
    def of(cls, kept: dict[str, Any]) -> OfferedContent:
        """As a rescore has kept it."""
        return cls(**{name: kept[name] for name in cls.__dataclass_fields__ if name in kept})


def prepare_content(dataset: Dataset, qrels: Qrels) -> OfferedContent:
    """Put what the dataset offers on these judgements into the store; no row is written."""
    with work_folder("rescore") as folder:
        topics, statistics = _topics(qrels, folder)
        judgements = ""
        if files.may_offer_judgements(qrels.split, scored=qrels.split, hidden=dataset.hidden):
            judgements = files.store_judgements(open_qrels_path(qrels), folder).sha256
    return OfferedContent(topics, statistics, judgements)


def _topics(qrels: Qrels, work: Path) -> tuple[str, dict[str, Any]]:
    """Topics and statistics with the judged queries that were no topics before; empty where all of them were.

    No topic is taken away: the runs that are there answer it, and over hidden judgements that would tell something.
    """
    version = qrels.version
    if version.topics_sha256 == version.queries_sha256:
        return "", {}
    path = local_path(Area.FILES, version.topics_sha256)
    known = {query.id for query in read_queries(path)}
    judged = set(load_qrels(qrels).query_ids)
    if judged <= known:
        return "", {}
    plain = work / "topics.jsonl"
    found = copy_queries(local_path(Area.FILES, version.queries_sha256), known | judged, plain)
    told = {**version.statistics, "queries": found.records, "words_per_query": found.mean_words}
    return files.store_file(files.gzipped(plain, work / "topics.gz")).sha256, told


def offer_content(dataset: Dataset, version: DatasetVersion, qrels: Qrels, content: OfferedContent) -> None:
    """Let runs answer the new topics, and offer the files that go with the judgements. In the switch's transaction."""
    if content.topics_sha256:
        version.topics_sha256, version.statistics = content.topics_sha256, content.statistics
        version.save(update_fields=["topics_sha256", "statistics"])
        files.offer_file(
            version, DatasetFile.Kind.QUERIES, files.stored_file(content.topics_sha256), files.QUERIES_NAME
        )
        if version.topics_sha256 == version.queries_sha256:
            files.withdraw_file(version, files.ALL_QUERIES_NAME)
    if content.judgements_sha256 and not dataset.hidden:
        files.offer_file(
            version,
            DatasetFile.Kind.QRELS,
            files.stored_file(content.judgements_sha256),
            files.judgements_name(qrels.split),
            f"The {qrels.split} judgements",
        )
