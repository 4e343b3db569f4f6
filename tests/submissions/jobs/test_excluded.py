"""A dataset with excluded documents, from its import to its board: runs made here and elsewhere, pages and files."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.test import Client

from evaluation.core.problems import InvalidContent
from leaderboard.core.storage.runs import open_run
from leaderboard.datasets.derived_files import top_documents_path
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Entry
from submissions.jobs.cleanup import remove_unreferenced
from tests.submissions.clients import Api
from tests.submissions.jobs.test_baseline import DOCUMENTS, download, make_baseline
from tests.submissions.workers import work

pytestmark = pytest.mark.django_db

PAIRS = "query-id\tcorpus-id\n"


def ranking(slug: str) -> list[str]:
    """What BM25 found for t1, best first."""
    entry = Entry.objects.get(is_baseline=True, dataset__slug=slug)
    assert entry.evaluation is not None
    with open_run(entry.evaluation.run.sha256) as text:
        lines = [line.split() for line in text.read().decode().splitlines()]
    return [name for query, _, name, *_ in lines if query == "t1"]


def test_no_run_has_the_excluded_documents_in_its_ranking(tmp_path: Path, api: Api) -> None:
    others = [f"d{number}" for number in range(3, DOCUMENTS + 1)]
    listed = PAIRS + "".join(f"t1\t{name}\n" for name in others)
    (tmp_path / "excluded.tsv").write_text(listed)
    make_baseline(tmp_path, hidden=False)
    found = ranking("small")
    assert set(found) == {"d1", "d2"}
    baseline = Entry.objects.get(is_baseline=True)
    assert baseline.evaluation is not None
    assert baseline.scores["RR@10"] == 1 / (1 + found.index("d1"))

    run = "".join(f"t1 Q0 {name} 1 {1000 - place} mine\n" for place, name in enumerate([*others, "d1", "d2"]))
    answer = api.submit(run, dataset="small", system="Mine")
    assert answer.status == 201, answer.body
    work()
    assert Entry.objects.get(is_baseline=False).scores["RR@10"] == 1

    page = Client().get("/datasets/small/").content.decode()
    assert "excluded documents are removed from the ranking of 1 query (128 in total)." in page
    assert "--excluded excluded.tsv.gz --run run.txt" in page
    assert gzip.decompress(download("small", "excluded.tsv.gz")).decode() == listed
    query = Client().get("/datasets/small/queries/t1/").content.decode()
    assert "Documents that the dataset excludes for this query are removed." in query
    assert "word 1" in query
    assert "word 3" not in query
    shown = top_documents_path(baseline.evaluation.run.sha256, baseline.evaluation.qrels.version.excluded_sha256)
    remove_unreferenced(grace=-1)
    assert shown.exists()


def test_another_list_is_another_version(tmp_path: Path) -> None:
    (tmp_path / "excluded.tsv").write_text(PAIRS + "t1\td2\n")
    first = make_baseline(tmp_path)
    (tmp_path / "excluded.tsv").write_text(PAIRS + "t1\td3\n")
    second = import_dataset(tmp_path, ImportOptions(slug="small"))
    assert (first.version.number, second.version.number, second.baseline_requested) == (1, 2, True)
    (tmp_path / "excluded.tsv").unlink()
    assert import_dataset(tmp_path, ImportOptions(slug="small")).version.excluded_sha256 == ""


def test_a_list_for_another_collection_is_refused_with_all_that_is_wrong(tmp_path: Path) -> None:
    (tmp_path / "excluded.tsv").write_text(PAIRS + "t1\td1\nt1\tnowhere\nt9\td2\n")
    with pytest.raises(InvalidContent) as caught:
        make_baseline(tmp_path)
    assert {problem.code for problem in caught.value.report.problems} == {
        "unknown_query",
        "excluded_and_relevant",
    }
    (tmp_path / "excluded.tsv").write_text(PAIRS + "t1\tnowhere\n")
    with pytest.raises(InvalidContent, match="document not in the corpus: nowhere"):
        import_dataset(tmp_path, ImportOptions(slug="small"))
    assert not Dataset.objects.exists()


@pytest.mark.parametrize(("visibility", "status"), [("public", 200), ("curators", 404)])
def test_the_list_is_as_public_as_the_queries(tmp_path: Path, visibility: str, status: int) -> None:
    (tmp_path / "excluded.tsv").write_text(PAIRS + "t1\td2\n")
    make_baseline(tmp_path, queries_visibility=visibility)
    assert Client().get("/datasets/small/files/excluded.tsv.gz").status_code == status
