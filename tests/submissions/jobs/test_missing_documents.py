"""Judged documents that the corpus lacks: counted as in trec_eval, and reported to readers of the judgments."""

from __future__ import annotations

import gzip
import re
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from evaluation.core.problems import InvalidContent
from evaluation.judgements.merge import Judge
from leaderboard.core.audit import acting
from leaderboard.core.storage.store import Area, path_of
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.comparing import compare_now, merge_now
from leaderboard.judgements.imports import Conflicts, import_judgements, request_merge
from leaderboard.models import Dataset, Entry, Qrels
from tests.factories import make_a_curator
from tests.leaderboard.tiny_collection import HEADER, write_folder
from tests.submissions.clients import Api
from tests.submissions.jobs.test_empty_baseline import do_everything

pytestmark = pytest.mark.django_db

#: The missing document has the highest grade of the first query, and a text is looked for wherever one is shown.
JUDGED = f"{HEADER}q1\td1\t1\nq1\td99\t2\nq2\td3\t1\n"
REMARK = "1 judged document is not in the corpus; it counts as relevant and no run can find it."
PERFECT = "q1 Q0 d1 1 2.5 mine\nq2 Q0 d3 1 2.5 mine\nq3 Q0 d4 1 2.5 mine\n"


def write_collection(folder: Path) -> Path:
    """Write a collection that judges d99, which is not in the corpus."""
    return write_folder(folder, {"qrels/test.tsv": JUDGED, "qrels/train.tsv": None})


@pytest.mark.parametrize("hidden", [False, True])
def test_a_missing_document_counts_as_relevant_and_is_reported(tmp_path: Path, api: Api, hidden: bool) -> None:
    imported = import_dataset(write_collection(tmp_path), ImportOptions(slug="tiny", hidden=hidden))
    assert imported.remarks == (REMARK,)
    do_everything()
    api.submit(PERFECT, dataset="tiny")
    do_everything()
    scores = Entry.objects.get(is_baseline=False).scores
    assert scores["R@100"] == (0.76 if hidden else 0.75)  # hidden: published in steps of 0.02
    page = Client().get("/datasets/tiny/").content.decode()
    about = Client().get("/api/v1/datasets/tiny/").json()
    assert (REMARK in page) is not hidden
    assert about["remarks"] == ([] if hidden else [REMARK])
    assert "not_in_corpus" not in Client().get("/api/v1/datasets/tiny/").content.decode()
    for address in set(re.findall(r'href="(/(?:datasets|figures|systems)/[^"#]*)"', page)):
        assert Client().get(address.replace("&amp;", "&")).status_code == 200, address
    if not hidden:
        assert Client().get("/datasets/tiny/queries/q1/").status_code == 200


def test_the_command_reports_missing_documents_or_refuses_them(tmp_path: Path, capsys: Any) -> None:
    folder = write_collection(tmp_path)
    with pytest.raises(CommandError, match="1 document not in the corpus: d99"):
        call_command("import_dataset", str(folder), slug="tiny", strict=True)
    assert not Dataset.objects.exists()
    call_command("import_dataset", str(folder), slug="tiny")
    assert REMARK in capsys.readouterr().out


def test_a_missing_document_is_no_candidate(tmp_path: Path) -> None:
    options = ImportOptions(slug="tiny", hidden=False, candidates_only=True)
    version = import_dataset(write_collection(tmp_path), options).version
    with gzip.open(path_of(Area.FILES, version.files.get(name="candidates.txt.gz").sha256), "rt") as lines:
        assert {line.split()[2] for line in lines} == {"d1", "d3"}


def test_judgements_of_another_collection_are_refused(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"qrels/test.tsv": f"{HEADER}q1\tx1\t1\nq2\tx2\t0\n"})
    with pytest.raises(InvalidContent, match="2 documents not in the corpus: x1, x2"):
        import_dataset(folder, ImportOptions(slug="tiny"))


def test_growing_judgements_may_name_missing_documents(tmp_path: Path) -> None:
    dataset = import_dataset(write_collection(tmp_path), ImportOptions(slug="tiny", hidden=False)).dataset
    path = tmp_path / "more.qrels"
    path.write_text("q1 0 d1 1\nq1 0 d98 0\nq1 0 d99 2\nq2 0 d4 1\n")
    with acting(make_a_curator()):
        with pytest.raises(InvalidContent, match="a document that is not in the dataset: 2 lines"):
            import_judgements(dataset, path, Judge("people", "Assessors"), strict=True)
        brought = import_judgements(dataset, path, Judge("people", "Assessors"))
        assert brought.counts["missing"] == 2
        compare_now(brought)
        request_merge(brought, Conflicts.KEEP)
        merge_now(brought)
    statistics = Qrels.objects.latest("pk").statistics
    assert (statistics["documents_not_in_corpus"], statistics["relevant_not_in_corpus"]) == (2, 1)
