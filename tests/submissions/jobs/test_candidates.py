"""A re-ranking dataset from its import to its board: AP first, candidates to download, models that re-rank these."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.test import Client

from evaluation.engines import describe
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Entry, System
from submissions.jobs.checkpoints.run_model import ModelTask, _write_given_runs
from tests.leaderboard.tiny_collection import HEADER
from tests.submissions.jobs.test_baseline import download, make_baseline

pytestmark = pytest.mark.django_db

JUDGED = HEADER + "t1\td1\t0\nt1\td2\t1\nt1\td3\t0\nt2\td9\t1\n"


def test_candidates_are_offered_without_grades_and_ranked_among_themselves(tmp_path: Path) -> None:
    imported = make_baseline(tmp_path, hidden=False, candidates_only=True)
    (tmp_path / "qrels" / "test.tsv").write_text(JUDGED)
    again = import_dataset(tmp_path, ImportOptions(slug="small"))
    assert (again.dataset.candidates_only, again.dataset.primary_measure) == (True, "AP")
    entry = Entry.objects.get(is_baseline=True)
    assert entry.scores["RR@10"] == 1  # d1 alone was judged: it stands first among one, wherever BM25 has it
    lines = [line.split() for line in gzip.decompress(download("small", "candidates.txt.gz")).splitlines()]
    assert {(query, name) for query, _, name, *_ in lines} == {
        (b"t1", b"d1"), (b"t1", b"d2"), (b"t1", b"d3"), (b"t2", b"d9"),
    }  # fmt: skip
    assert len(imported.version.files.filter(kind="candidates")) == 1
    page = Client().get("/datasets/small/").content.decode()
    assert "Runs re-rank the judged documents of each query" in page
    assert "--candidates-only --run run.txt" in page


@pytest.mark.parametrize(
    ("engine", "parameters", "given"),
    [
        ("cross-encoder", {}, True),
        ("late-interaction", {"mode": "candidates"}, True),
        ("late-interaction", {"mode": "exhaustive"}, False),
        ("dense", {}, False),
        ("fusion", {}, False),
    ],
)
def test_a_model_that_re_ranks_a_run_gets_the_candidates(
    engine: str, parameters: dict[str, str], given: bool, tmp_path: Path
) -> None:
    imported = make_baseline(tmp_path / "collection", candidates_only=True)
    found = _write_given_runs(ModelTask(System(), describe(engine), parameters), imported.version, tmp_path)
    assert [path.read_text() for path in found] == (["t1 Q0 d1 1 -1 candidates\n"] if given else [])
