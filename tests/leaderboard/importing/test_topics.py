"""Which queries a run is to answer, and which files offer them."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command

from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, local_path
from leaderboard.datasets.qrels import scoring_target
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, DatasetVersion
from tests.factories import make_user
from tests.leaderboard.tiny_collection import HEADER, write_folder, write_zip

pytestmark = pytest.mark.django_db

#: q1 and q2 are scored, q3 is for training, q4 is for development and scored too, q5 is judged nowhere.
LINES = [
    '{"_id": "q1", "text": "one two three", "metadata": {"narrative": "…"}}\n',
    '{ "text": "one", "_id": "q2"}\n',
    '{"_id": "q3", "text": "left out of what is counted"}\n',
    '{"_id": "q4", "text": "one two"}\n',
    '{"_id": "q5", "text": "one two"}',
]
SPLITS = {
    "queries.jsonl": "".join(LINES),
    "qrels/test.tsv": HEADER + "q1\td1\t1\nq2\td2\t1\nq4\td3\t1\n",
    "qrels/train.tsv": HEADER + "q3\td4\t1\n",
    "qrels/dev.tsv": HEADER + "q4\td4\t1\n",
}


def splits(folder: Path, changes: Mapping[str, str | None] = {}, **options: Any) -> ImportResult:
    """Import the five queries as `tiny`, with other files."""
    return import_dataset(write_folder(folder, {**SPLITS, **changes}), ImportOptions(slug="tiny", **options))


def topics_of(imported: ImportResult) -> list[str]:
    """The ids of the queries that a run is checked against."""
    return sorted(scoring_target(DatasetVersion.objects.get(pk=imported.version.pk)).query_ids)


def offered(imported: ImportResult) -> dict[str, tuple[str, str]]:
    """The files of queries: name → description and expanded content."""
    files = imported.version.files.filter(kind__in=["queries", "all_queries"])
    contents = {}
    for file in files:
        stored = local_path(Area.FILES, file.sha256).read_bytes()
        contents[file.name] = (file.description, gzip.decompress(stored).decode())
    return contents


def test_queries_that_only_published_judgements_name_are_left_out(tmp_path: Path) -> None:
    imported = splits(tmp_path)
    # q5 stays: that nobody judged it is for the scorer alone to know.
    assert topics_of(imported) == ["q1", "q2", "q4", "q5"]
    assert offered(imported) == {
        "queries.jsonl.gz": (
            "The evaluated queries, one JSON object per line",
            "".join([*LINES[:2], *LINES[3:]]) + "\n",
        ),
        "queries.all.jsonl.gz": ("All queries, including train and dev", "".join(LINES)),
    }


def test_statistics_count_the_queries_to_answer(tmp_path: Path) -> None:
    statistics = splits(tmp_path).version.statistics
    assert (statistics["queries"], statistics["all_queries"], statistics["words_per_query"]) == (4, 5, 2)


def test_the_command_tells_both_numbers(tmp_path: Path) -> None:
    out = StringIO()
    call_command("import_dataset", str(write_folder(tmp_path, SPLITS)), slug="tiny", stdout=out)
    assert "5 documents, 4 queries with judgments and 1 of other splits, 3 judgments of 3 queries" in out.getvalue()


@pytest.mark.parametrize("changes", [{"qrels/train.tsv": None}, {"qrels/train.tsv": HEADER + "q1\td2\t1\n"}])
def test_where_nothing_is_left_out_topics_are_the_queries(tmp_path: Path, changes: Mapping[str, str | None]) -> None:
    imported = splits(tmp_path, changes)
    assert imported.version.topics_sha256 == imported.version.queries_sha256
    assert list(offered(imported)) == ["queries.jsonl.gz"]


@pytest.mark.parametrize(
    ("changes", "options"),
    [
        ({"qrels/test.tsv": None}, {"collecting": True}),
        ({"corpus.jsonl": None}, {"runs_only": True}),
    ],
)
def test_collecting_and_runs_only_datasets_ask_for_all_queries(
    tmp_path: Path, changes: Mapping[str, str | None], options: dict[str, Any]
) -> None:
    imported = splits(tmp_path, changes, **options)
    assert topics_of(imported) == ["q1", "q2", "q3", "q4", "q5"]
    assert list(offered(imported)) == ["queries.jsonl.gz"]


def test_judgements_that_come_later_set_the_topics(tmp_path: Path) -> None:
    collecting = splits(tmp_path / "1", {"qrels/test.tsv": None}, collecting=True)
    judged = splits(tmp_path / "2")
    assert judged.version == collecting.version
    assert "topics" in judged.changes
    assert topics_of(judged) == ["q1", "q2", "q4", "q5"]
    assert judged.version.statistics["queries"] == 4
    assert sorted(offered(judged)) == ["queries.all.jsonl.gz", "queries.jsonl.gz"]
    # Importing once more without them takes nothing away.
    with acting(make_user(is_superuser=True)):
        assert splits(tmp_path / "1", {"qrels/test.tsv": None}, collecting=True).changes == ()
    assert topics_of(judged) == ["q1", "q2", "q4", "q5"]


def test_another_split_has_other_topics(tmp_path: Path) -> None:
    splits(tmp_path, {"qrels/dev.tsv": HEADER + "q3\td4\t1\n"}, hidden=False)
    moved = splits(tmp_path, {"qrels/dev.tsv": HEADER + "q3\td4\t1\n", "qrels/train.tsv": None}, split="dev")
    assert topics_of(moved) == ["q3", "q5"]
    assert Dataset.objects.get().current_version == moved.version


@pytest.mark.parametrize("form", ["gz", "zip"])
def test_other_forms_of_the_same_content_keep_the_topics(tmp_path: Path, form: str) -> None:
    first = splits(tmp_path / "plain")
    if form == "gz":
        path = write_folder(tmp_path / "gz", SPLITS, compressed=True)
    else:
        path = write_zip(tmp_path / "tiny.zip", SPLITS)
    again = import_dataset(path, ImportOptions(slug="tiny"))
    assert again.version.topics_sha256 == first.version.topics_sha256
    assert "topics" not in again.changes
