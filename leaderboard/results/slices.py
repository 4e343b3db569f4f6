"""Slices of the judged queries of datasets with open judgments; the only writer of `Dataset.tags_sha256`.

Datasets with hidden judgments have no slices, because a mean over a known subset of hidden queries would be another
equation on the judgments (docs/security.md). Slices by properties of texts require public texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence, Set
from pathlib import Path
from typing import NamedTuple

import numpy as np
from django.db import transaction
from django.utils.translation import gettext
from django.utils.translation import gettext_noop as _
from numpy.typing import NDArray

from evaluation.collections.profiles import read_document_lengths
from evaluation.core.problems import InvalidContent, format_count
from evaluation.judgements import slices as classes
from evaluation.judgements.qrels import Qrels as Judgements
from evaluation.judgements.qrels import read_tags
from leaderboard.core.audit import record
from leaderboard.core.cache.memory import LONG_LIFETIME
from leaderboard.core.http.choices import UnknownChoice
from leaderboard.core.storage.store import Area, local_path, put
from leaderboard.datasets.problems import name_some, problem
from leaderboard.datasets.qrels import JudgementsNotOpen, open_judgements, topic_ids, topic_texts
from leaderboard.models import Dataset, Qrels, Visibility
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_board
from leaderboard.results.board_rows.rows import board_cache

logger = logging.getLogger(__name__)

#: Minimum number of queries for intervals and tests. Percentile intervals of fewer queries are far too narrow.
MIN_TESTED = 10
#: Maximum numbers of different tags, and of bytes of a compressed profile that a page reads (5 million documents).
MAX_TAGS, MAX_PROFILE_BYTES = 30, 64 * 2**20
#: Labels and definitions of slices, by name.
_CLASSES: Mapping[str, tuple[str, str]] = {
    "length:short": ("short queries", f"at most {classes.MAX_SHORT_WORDS} words"),
    "length:medium": ("medium-length queries", f"{classes.MAX_SHORT_WORDS + 1} to {classes.MAX_MEDIUM_WORDS} words"),
    "length:long": ("long queries", f"more than {classes.MAX_MEDIUM_WORDS} words"),
    "type:question": ("questions", "a question mark or a question word"),
    "type:keywords": ("keyword queries", f"not a question, at most {classes.MAX_KEYWORD_WORDS} words"),
    "type:statement": ("statements", f"not a question, more than {classes.MAX_KEYWORD_WORDS} words"),
    "documents:short": ("queries with short relevant documents", "median length in the shortest third"),
    "documents:medium": ("queries with medium-length relevant documents", "median length in the middle third"),
    "documents:long": ("queries with long relevant documents", "median length in the longest third"),
}


class QuerySlice(NamedTuple):
    """A subset of the `total` judged queries; `rows` are their positions in the judgments.

    `name` is its name in addresses, such as `length:short`. `label` describes the queries in a sentence.
    """

    name: str
    label: str
    definition: str
    rows: NDArray[np.intp]
    total: int

    @property
    def size(self) -> int:
        return len(self.rows)

    @property
    def text(self) -> str:
        """Description such as `112 short queries (of 323)`."""
        singular = self.label.replace("queries", "query", 1) if "queries" in self.label else self.label[:-1]
        return f"{format_count(self.size, singular, self.label)} (of {self.total:,})"

    @property
    def has_enough_queries(self) -> bool:
        return self.size >= MIN_TESTED

    def as_data(self) -> dict[str, str | int]:
        """Return plain values for JSON and the API."""
        return {"name": self.name, "label": self.label, "queries": self.size, "judged_queries": self.total}


class DatasetSlices(NamedTuple):
    """Slices that a dataset's board offers, or the reason why there are none."""

    slices: Sequence[QuerySlice] = ()
    reason: str = ""

    def choices(self, selected: str) -> list[tuple[str, str, bool]]:
        """Return name, label, and whether it is selected, of all judged queries and each slice; empty without slices.

        Slices of too few queries for tests are offered only if they are selected.
        """
        offered = [one for one in self.slices if one.has_enough_queries or one.name == selected]
        every = [("", f"{gettext('all queries')} ({one.total:,})", not selected) for one in self.slices[:1]]
        return every + [(one.name, f"{one.label} ({one.size:,})", one.name == selected) for one in offered]

    def choose(self, name: str) -> QuerySlice | None:
        """Return the slice with this name, None for an empty name. Raises UnknownChoice."""
        match = next((each for each in self.slices if each.name == name), None)
        if name and match is None:
            names = [each.name for each in self.slices]
            raise UnknownChoice("slice", name, names, expected=f"none. {self.reason or NO_SLICES}".rstrip("."))
        return match


NO_SLICES = "Slices require per-query values on a single dataset."
HIDDEN_REASON = _("There are no scores by slice, because they would reveal hidden judgments.")


def read_slices(qrels_id: int | None, tags_sha256: str) -> DatasetSlices:
    """Return the slices of a dataset on current or earlier judgments, with its tags, in one query.

    There are none, with a warning in the log, if a file cannot be read.
    """
    rows = Qrels.objects.select_related("version__dataset", "version__profile")
    qrels = rows.filter(pk=qrels_id).first() if qrels_id is not None else None
    if qrels is None:
        return DatasetSlices()
    version, dataset = qrels.version, qrels.version.dataset
    dataset.current_version, dataset.current_qrels, dataset.tags_sha256 = version, qrels, tags_sha256
    return current_slices(dataset)


def current_slices(dataset: Dataset) -> DatasetSlices:
    """Return the slices of a dataset on its current judgments, like `read_slices`."""
    if dataset.current_qrels is None:
        return DatasetSlices()
    try:
        return DatasetSlices(open_slices(dataset))
    except JudgementsNotOpen:
        return DatasetSlices(reason=HIDDEN_REASON if dataset.hidden else "")
    except (OSError, InvalidContent) as error:  # A missing file must not prevent the board from being shown.
        logger.warning("could not read the slices of %s: %s", dataset, error)
        return DatasetSlices()


def open_slices(dataset: Dataset) -> Sequence[QuerySlice]:
    """Return the slices of a dataset with open judgments. Raises JudgementsNotOpen."""
    judgements, version = open_judgements(dataset), dataset.current_version
    assert version is not None  # Open judgments belong to the current version.
    assert dataset.current_qrels is not None
    profile = getattr(version, "profile", None) if dataset.documents_visibility == Visibility.PUBLIC else None
    checksums = [
        dataset.current_qrels.sha256,
        version.topics_sha256 if dataset.queries_visibility == Visibility.PUBLIC else "",
        profile.terms_sha256 if profile is not None else "",
        dataset.tags_sha256,
    ]
    key = f"slices {checksums} {dataset.language} {dataset.relevance_level}"
    slices: Sequence[QuerySlice] | None = board_cache.get(key)
    if slices is None:
        slices = list(_build_slices(judgements, dataset, *checksums[1:]))
        board_cache.put(key, slices, 8 * sum(each.size for each in slices) + 4096, LONG_LIFETIME)
    return slices


def _build_slices(
    judgements: Judgements, dataset: Dataset, topics: str, profile: str, tags: str
) -> Iterator[QuerySlice]:
    """Yield the slices by properties of texts, by the length of relevant documents, and by tags.

    The arguments are the checksums of files, empty if a file must not be read. A property other than tags is omitted if
    all queries have the same value.
    """
    ids = judgements.query_ids
    texts = topic_texts(topics) if topics else {}
    properties = {
        "length": [classes.length_class(texts[query]) if query in texts else "" for query in ids],
        "type": [classes.type_class(texts[query], dataset.language) if query in texts else "" for query in ids],
        "script": [classes.script_class(texts.get(query, "")) for query in ids],
        "documents": _document_classes(judgements, dataset.relevance_level, profile) if profile else [],
    }
    for name, values in properties.items():
        choices = sorted(set(values) - {""}, reverse=name in ("length", "documents"))  # short, medium, long
        for value in choices if len(choices) > 1 else ():
            script = f"queries in {value.title()} script", "the most frequent script of the letters"
            label = _CLASSES.get(f"{name}:{value}", script)
            yield QuerySlice(f"{name}:{value}", *label, np.flatnonzero(np.array(values) == value), len(ids))
    tags_by_query = read_tags(local_path(Area.FILES, tags)) if tags else {}
    for tag in sorted({tag for query in ids for tag in tags_by_query.get(query, ())}):
        rows = np.array([row for row, query in enumerate(ids) if tag in tags_by_query.get(query, ())])
        yield QuerySlice(f"tag:{tag}", f"queries tagged “{tag}”", "tagged by a curator", rows, len(ids))


def _document_classes(judgements: Judgements, relevance_level: int, profile: str) -> list[str]:
    """Return each query's class by the median length of its relevant documents, empty if it has none.

    There are no classes if the profile is too large to be read by a page.
    """
    path = local_path(Area.PROFILES, profile)
    if path.stat().st_size > MAX_PROFILE_BYTES:
        return []
    lengths = read_document_lengths(path)
    if not len(lengths.words):
        return []
    thirds = np.quantile(lengths.words, (1 / 3, 2 / 3), method="inverted_cdf").tolist()
    values = []
    for row in range(len(judgements.query_ids)):
        relevant_ids = [name for name, grade in judgements.get_grades(row).items() if grade >= relevance_level]
        words = lengths.find(relevant_ids)
        values.append(classes.document_class(float(np.median(words)), thirds) if len(words) else "")
    return values


def check_tags(path: Path, query_ids: Set[str]) -> int:
    """Check a tag file against the queries of a version, and return the number of tagged queries.

    Raises InvalidContent with all problems.
    """
    tags_by_query, problems = read_tags(path), []
    if unknown_queries := [query for query in tags_by_query if query not in query_ids]:
        count = len(unknown_queries)
        message = f"{format_count(count, 'query', 'queries')} not in the dataset: {name_some(unknown_queries)}"
        hint = "Tag only queries of the dataset. Check that the files belong to the same collection."
        problems.append(problem("unknown_query", message, hint, count))
    tag_count = len({tag for tags in tags_by_query.values() for tag in tags})
    if tag_count > MAX_TAGS:
        message = f"the file has {tag_count:,} different tags"
        problems.append(problem("too_many_tags", message, f"Use at most {MAX_TAGS} tags."))
    if problems:
        raise InvalidContent.build(*problems)
    return len(tags_by_query)


@transaction.atomic
def set_tags(dataset: Dataset, path: Path | None) -> int:
    """Store a file as the tags of the dataset's queries, or remove them, and return the number of tagged queries.

    Call this within `audit.acting`. Raises InvalidContent with all problems of the file.
    """
    locked, sha256, count = lock_board(dataset.pk), "", 0
    if path is not None:
        version = locked.current_version
        count = check_tags(path, topic_ids(version.queries_sha256) if version else frozenset())
        sha256 = put(Area.FILES, path)
    if sha256 != locked.tags_sha256:
        record("tags", locked, dataset=locked, before={"tags": locked.tags_sha256}, after={"tags": sha256})
        locked.tags_sha256 = dataset.tags_sha256 = sha256
        locked.save(update_fields=["tags_sha256"])
        board_changed(locked, Kind.DESCRIPTION, row_entries=())
    return count
