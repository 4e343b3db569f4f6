"""Topics and files that belong to new judgments.

The scorer prepares them before the board is switched, because it has to read the files.
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
    """Store keys of new content.

    `topics_sha256` and `statistics` are empty if the topics do not change, `judgements_sha256` if the judgments are
    hidden.
    """

    topics_sha256: str = ""
    statistics: dict[str, Any] = field(default_factory=dict)
    judgements_sha256: str = ""

    @classmethod
    def from_stored(cls, stored: dict[str, Any]) -> OfferedContent:
        """Build an instance from a rescore's stored content."""
        return cls(**{name: stored[name] for name in cls.__dataclass_fields__ if name in stored})


def prepare_content(dataset: Dataset, qrels: Qrels) -> OfferedContent:
    """Store the topics and judgments that the dataset will offer with these qrels, without writing rows."""
    with work_folder("rescore") as folder:
        topics, statistics = _extend_topics(qrels, folder)
        judgements = ""
        if files.may_offer_judgements(qrels.split, scored_split=qrels.split, hidden=dataset.hidden):
            judgements = files.store_judgements(open_qrels_path(qrels), folder).sha256
    return OfferedContent(topics, statistics, judgements)


def _extend_topics(qrels: Qrels, work: Path) -> tuple[str, dict[str, Any]]:
    """Store the topics extended by newly judged queries, and return their checksum and the version's new statistics.

    Both are empty if no topic is new. Topics are never removed: existing runs answer them, and with hidden judgments a
    removal would reveal information.
    """
    version = qrels.version
    if version.topics_sha256 == version.queries_sha256:
        return "", {}
    path = local_path(Area.FILES, version.topics_sha256)
    topic_ids = {query.id for query in read_queries(path)}
    judged_ids = set(load_qrels(qrels).query_ids)
    if judged_ids <= topic_ids:
        return "", {}
    topics_path = work / "topics.jsonl"
    topic_statistics = copy_queries(local_path(Area.FILES, version.queries_sha256), topic_ids | judged_ids, topics_path)
    statistics = {
        **version.statistics,
        "queries": topic_statistics.records,
        "words_per_query": topic_statistics.mean_words,
    }
    return files.store_file(files.gzipped(topics_path, work / "topics.gz")).sha256, statistics


def offer_content(dataset: Dataset, version: DatasetVersion, qrels: Qrels, content: OfferedContent) -> None:
    """Set the version's new topics, and offer the files of topics and open judgments for download.

    Call this in the transaction of the switch.
    """
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
            f"The {qrels.split} judgments",
        )
