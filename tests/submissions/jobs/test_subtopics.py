"""Judgments by subtopic from import to board: stored with hidden judgments, and offered with open ones."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.conf import settings
from django.test import Client

from evaluation.core.problems import InvalidContent
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, path_of
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Entry
from leaderboard.results.measures import RefusedMeasures, set_measures
from submissions.jobs.cleanup import find_missing_files
from tests.factories import make_a_curator
from tests.submissions.jobs.test_baseline import download, make_baseline

pytestmark = pytest.mark.django_db

MEASURES = ("alpha_nDCG@1000", "StRecall@1000", "nDCG@1000")


FILE = "subtopic-qrels.txt"
#: Document d1 is relevant to two or three subtopics of the only judged query.
TWO, THREE = ("".join(f"t1 {each} d1 1\n" for each in subtopics) for subtopics in ("21", "132"))


def test_a_run_is_scored_and_verified_by_subtopics(tmp_path: Path) -> None:
    make_baseline(tmp_path, qrels=(FILE, TWO), primary="alpha_nDCG@1000", measures=MEASURES, hidden=False)
    entry = Entry.objects.get(is_baseline=True)
    assert entry.scores["StRecall@1000"] == 1
    assert 0 < entry.scores["alpha_nDCG@1000"] == pytest.approx(entry.scores["nDCG@1000"])
    assert gzip.decompress(download("small", "subtopic-qrels.txt.gz")).decode() == "t1 1 d1 1\nt1 2 d1 1\n"
    assert "alpha_nDCG@1000" in Client().get("/datasets/small/").content.decode()


def test_subtopics_of_hidden_judgments_are_private(tmp_path: Path) -> None:
    imported = make_baseline(tmp_path, qrels=(FILE, TWO), primary="NRBP", measures=("R@100",))
    assert imported.qrels is not None
    stored = path_of(Area.QRELS, imported.qrels.subtopics_sha256)
    assert stored.read_text() == "t1 1 d1 1\nt1 2 d1 1\n"
    assert not imported.version.files.filter(name__contains="subtopic").exists()
    assert Client().get("/datasets/small/files/subtopic-qrels.txt.gz").status_code == 404
    assert not find_missing_files(private=True)
    stored.unlink()
    assert find_missing_files(private=True) == [
        f"{stored.relative_to(settings.VAR)}: missing, needed by judgements {imported.qrels.pk}"
    ]


def test_other_subtopics_are_the_next_judgments(tmp_path: Path) -> None:
    first = make_baseline(tmp_path, qrels=(FILE, TWO), primary="alpha_nDCG@1000", measures=MEASURES, hidden=False)
    (tmp_path / FILE).rename(tmp_path / "qrels" / "test.tsv").write_text("t1 0 d1 1\n")
    with pytest.raises(InvalidContent, match="StRecall@1000 cannot be computed"):
        import_dataset(tmp_path, ImportOptions(slug="small"))
    (tmp_path / "qrels" / "test.tsv").rename(tmp_path / FILE).write_text(THREE)
    second = import_dataset(tmp_path, ImportOptions(slug="small"))
    assert second.changes[0].startswith("rescore on test qrels v2")
    (tmp_path / FILE).write_text(TWO)
    assert import_dataset(tmp_path, ImportOptions(slug="small")).qrels == first.qrels


def test_a_curator_cannot_choose_a_measure_over_missing_subtopics(tmp_path: Path) -> None:
    imported = make_baseline(tmp_path, hidden=False)
    with acting(make_a_curator(), "to see"), pytest.raises(RefusedMeasures, match="StRecall@5 cannot be computed"):
        set_measures(imported.dataset, "nDCG@10", ["StRecall@5"])
