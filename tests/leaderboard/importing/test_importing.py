"""Importing collections: what is kept, what changes when it is done again, and what follows."""

from __future__ import annotations

from io import StringIO
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import pytest
from django.conf import settings
from django.core.management import call_command

from evaluation.core.problems import InvalidContent
from evaluation.measures.registry import DEFAULT_MEASURES
from evaluation.runs.score import check_run
from leaderboard.core.audit import acting
from leaderboard.core.storage.runs import open_run, store_run
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets.qrels import load_qrels, scoring_target
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.disclosure import COMPARED
from leaderboard.models import AuditRecord, Dataset, Entry, Run, WorkRequest
from leaderboard.results.publishing.scored import publish_entry
from leaderboard.results.publishing.visibility import mark_published
from leaderboard.results.records import record_evaluation, record_run
from leaderboard.systems.baselines import describe_bm25
from leaderboard.systems.records import house_system
from tests.factories import make_a_curator
from tests.leaderboard.tiny_collection import good_files, lines_of, write_folder, write_zip
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db


def results_asked_for() -> list[WorkRequest]:
    """The requests for results; what is found of texts and boards is asked for beside them."""
    beside = [WorkRequest.Kind.CERTAINTY, WorkRequest.Kind.STATISTICS]
    return list(WorkRequest.objects.exclude(kind__in=beside))


def tiny(path: Path, **options: Any) -> ImportResult:
    """Import the path as `tiny`."""
    return import_dataset(path, ImportOptions(slug="tiny", **options))


def score_something(
    imported: ImportResult, value: float = 0.123456, *, sha256: str = "0" * 64, baseline: bool = True
) -> Entry:
    """An entry as a worker would publish it, with the same value for every default measure."""
    import numpy as np

    assert imported.qrels is not None
    system = house_system(slug="s", name="S", architecture="lexical", description="", parameters={})
    run = record_run(
        version=imported.version, system=system, sha256=sha256, origin=Run.Origin.RETRIEVED, size=1, lines=1
    )
    evaluation = record_evaluation(
        run=run,
        qrels=imported.qrels,
        specification="1",
        measures=DEFAULT_MEASURES,
        means=dict.fromkeys(DEFAULT_MEASURES, value),
        per_query=np.zeros((2, len(DEFAULT_MEASURES))),
        missing_queries=0,
    )
    return publish_entry(Entry(provenance=Entry.Provenance.MEASURED), evaluation, is_baseline=baseline)


def test_a_folder_becomes_a_dataset_that_waits_for_its_baseline(tmp_path: Path) -> None:
    imported = tiny(write_folder(tmp_path), name="Tiny", domain="Toys")
    dataset = Dataset.objects.get(slug="tiny")
    assert (dataset.name, dataset.domain, dataset.state) == ("Tiny", "Toys", Dataset.State.PREPARING)
    assert dataset.current_version == imported.version
    assert dataset.current_qrels == imported.qrels
    (request,) = results_asked_for()
    assert (request.kind, request.dataset) == (WorkRequest.Kind.BASELINE, dataset)
    mark_published(dataset)
    dataset.refresh_from_db()
    assert dataset.state == Dataset.State.PUBLISHED


def test_statistics_are_those_of_table_one(tmp_path: Path) -> None:
    imported = tiny(write_folder(tmp_path))
    statistics = imported.version.statistics
    assert (statistics["documents"], statistics["queries"], statistics["empty_documents"]) == (5, 2, 1)
    assert statistics["words_per_document"] == pytest.approx(4 * 6 / 5)
    assert statistics["words_per_query"] == 3
    assert imported.qrels is not None
    judged = imported.qrels.statistics
    assert (judged["judged_queries"], judged["judgements"], judged["relevant_per_query"]) == (2, 4, 1.5)
    assert judged["grades"] == {"0": 1, "1": 2, "2": 1}
    assert judged["relevance_levels"] == 3


def test_negative_grades_are_counted_and_unjudged(tmp_path: Path) -> None:
    imported = tiny(write_folder(tmp_path))
    assert imported.qrels is not None
    assert imported.qrels.statistics["negative_grades"] == 1
    assert "d4" not in load_qrels(imported.qrels).as_dict()["q2"]


DIVERSITY = "q1 1 d1 2\nq1 2 d1 3\nq1 1 d2 1\nq2 1 d3 1\nq2 1 d4 -1\n"


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_judgments_by_subtopic_have_the_highest_grades(tmp_path: Path, zipped: bool) -> None:
    changes = {"qrels/test.tsv": None, "subtopic-qrels.txt": DIVERSITY}
    folder = write_zip(tmp_path / "tiny.zip", changes) if zipped else write_folder(tmp_path / "tiny", changes)
    imported = import_dataset(folder, ImportOptions(slug="tiny", primary="alpha_nDCG@20"))
    assert imported.qrels is not None
    assert load_qrels(imported.qrels).as_dict() == {"q1": {"d1": 3, "d2": 1}, "q2": {"d3": 1}}
    assert path_of(Area.QRELS, imported.qrels.subtopics_sha256).read_text() == DIVERSITY


def test_documents_without_text_are_kept(tmp_path: Path) -> None:
    imported = tiny(write_folder(tmp_path))
    target = scoring_target(imported.version)
    assert target.document_ids is not None
    assert "d5" in target.document_ids


def test_a_target_has_judgements_only_where_they_are_asked_for(tmp_path: Path) -> None:
    imported = tiny(write_folder(tmp_path), drop_self_matches=True)
    target = scoring_target(imported.version)
    assert target.qrels is None
    assert sorted(target.query_ids) == ["q1", "q2"]
    assert (target.hidden, target.drop_self_matches) == (True, True)
    scoring = scoring_target(imported.version, qrels=imported.qrels)
    assert scoring.qrels is not None
    assert scoring is scoring_target(imported.version, qrels=imported.qrels)


@pytest.mark.parametrize("form", ["gz", "zip", "trec"])
def test_other_forms_of_the_same_content_change_nothing(tmp_path: Path, form: str) -> None:
    first = tiny(write_folder(tmp_path / "plain"))
    other = tmp_path / form
    if form == "gz":
        write_folder(other, compressed=True)
    elif form == "zip":
        write_zip(other)
    else:
        write_folder(other, {"qrels/test.tsv": None, "qrels.txt": good_files()["qrels/test.tsv"]})
    again = tiny(other)
    assert again.version == first.version
    assert again.qrels == first.qrels
    assert again.changes == ()
    assert len(results_asked_for()) == 1


def test_the_same_bytes_again_change_nothing_and_say_so(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    tiny(folder)
    rows = list(Dataset.objects.values()), WorkRequest.objects.count()
    stored = sorted(path for path in Path(settings.VAR).rglob("*") if "store" in path.parts)
    out = StringIO()
    call_command("import_dataset", str(folder), slug="tiny", stdout=out)
    assert "Nothing changed: tiny version 1 has exactly this content and these settings." in out.getvalue()
    dataset = Dataset.objects.values()
    for row in (*rows[0], *dataset):
        row.pop("updated_at")
    assert (list(dataset), WorkRequest.objects.count()) == rows
    assert sorted(path for path in Path(settings.VAR).rglob("*") if "store" in path.parts) == stored


@pytest.mark.parametrize(
    ("language", "code"), [("eng-Latn", "en"), ("Norwegian Bokmål", "no"), ("zho-Hans", "zh"), (None, "en")]
)
def test_the_language_is_stored_as_one_code(tmp_path: Path, language: str | None, code: str) -> None:
    imported = tiny(write_folder(tmp_path), language=language)
    assert imported.dataset.language == code
    assert imported.remarks == ()


def test_a_language_without_an_analyzer_is_remarked(tmp_path: Path) -> None:
    out = StringIO()
    call_command("import_dataset", str(write_folder(tmp_path)), "--slug=tiny", "--language=swahili", stdout=out)
    assert "There is no analyzer for Swahili: BM25 compares lowercased words" in out.getvalue()
    assert "There is no analyzer for Swahili" in describe_bm25(Dataset.objects.get().language)


def test_another_language_asks_for_bm25_again(tmp_path: Path) -> None:
    score_something(tiny(write_folder(tmp_path)))
    Dataset.objects.update(language="eng")  # as an earlier version stored it
    WorkRequest.objects.all().delete()
    assert "a curator can set the language to en" in describe_bm25("eng")
    imported = tiny(tmp_path, language="eng")
    assert imported.changes == ("language",)
    assert imported.baseline_requested
    assert [request.kind for request in results_asked_for()] == [WorkRequest.Kind.BASELINE]
    assert "Porter stemming" in describe_bm25(imported.dataset.language)


def test_only_other_settings_update_the_row(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    tiny(folder, name="Tiny")
    imported = tiny(folder, task="Toy retrieval")
    assert imported.changes == ("task",)
    assert (imported.dataset.name, imported.dataset.task) == ("Tiny", "Toy retrieval")
    assert not imported.baseline_requested


def test_other_bytes_make_a_version_and_old_entries_stay_readable(tmp_path: Path) -> None:
    first = tiny(write_folder(tmp_path / "1"))
    entry = score_something(first)
    mark_published(first.dataset)
    more = good_files()["corpus.jsonl"] + lines_of([{"_id": "d6", "text": "one more"}])
    second = tiny(write_folder(tmp_path / "2", {"corpus.jsonl": more}), version_label="with one more")
    assert (second.version.number, str(second.version)) == (2, "tiny with one more")
    dataset = Dataset.objects.get(slug="tiny")
    assert dataset.current_version == second.version
    assert dataset.state == Dataset.State.PUBLISHED  # the page stays while the new baseline is made
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE).count() == 2
    entry.refresh_from_db()
    assert entry.visibility == Entry.Visibility.PUBLIC
    assert entry.evaluation is not None
    assert entry.evaluation.run.version == first.version
    assert load_qrels(entry.evaluation.qrels).number_of_judgements == 4
    again = score_something(second)
    assert again.comparison_group != entry.comparison_group


def test_other_judgements_of_the_same_content_are_the_next_qrels(tmp_path: Path) -> None:
    first = tiny(write_folder(tmp_path / "1"))
    qrels = good_files()["qrels/test.tsv"] + "q3\td1\t1\n"
    second = tiny(write_folder(tmp_path / "2", {"qrels/test.tsv": qrels}))
    assert second.version == first.version
    assert second.qrels is not None
    assert (second.qrels.number, second.qrels.statistics["judged_queries"]) == (2, 3)
    assert second.baseline_requested


def test_other_judgements_of_scored_content_are_a_rescore_and_the_board_stays(tmp_path: Path) -> None:
    first = tiny(write_folder(tmp_path / "1"), hidden=False)
    score_something(first)
    offered = list(first.version.files.values_list("name", "sha256"))
    qrels = good_files()["qrels/test.tsv"] + "q3\td1\t1\n"
    more = write_folder(tmp_path / "2", {"qrels/test.tsv": qrels})
    second = tiny(more)
    assert second.changes == ("rescore on test qrels v2",)
    assert (second.qrels, second.baseline_requested) == (first.qrels, False)
    assert Dataset.objects.get(slug="tiny").current_qrels == first.qrels
    assert list(second.version.files.values_list("name", "sha256")) == offered
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.RESCORE).count() == 1
    assert tiny(more).changes == ()
    other = write_folder(tmp_path / "3", {"qrels/test.tsv": qrels + "q3\td2\t1\n"})
    with pytest.raises(InvalidContent, match="tiny is being rescored on qrels v2"):
        tiny(other)


def test_going_back_to_earlier_bytes_moves_the_board_back(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "1")
    first = tiny(folder)
    score_something(first)
    tiny(write_folder(tmp_path / "2", {"corpus.jsonl": good_files()["corpus.jsonl"].replace("words", "terms")}))
    back = tiny(folder)
    assert back.version == first.version
    assert not back.baseline_requested


def test_hidden_is_the_default_and_shows_three_measures(tmp_path: Path) -> None:
    dataset = tiny(write_folder(tmp_path)).dataset
    assert dataset.hidden
    assert dataset.measures == ["nDCG@10", "R@100", "R@1000"]


def test_open_shows_the_default_measures_with_the_primary_one_first(tmp_path: Path) -> None:
    dataset = tiny(write_folder(tmp_path), hidden=False, primary="map").dataset
    assert dataset.primary_measure == dataset.measures[0] == "AP"
    assert set(dataset.measures) == set(DEFAULT_MEASURES)


def test_measures_may_be_chosen(tmp_path: Path) -> None:
    dataset = tiny(write_folder(tmp_path), hidden=False, primary="nDCG@10", measures=("P@5", "bpref", "AP")).dataset
    assert dataset.measures == ["nDCG@10", "P@5", "Bpref", "AP"]


def test_opening_hidden_judgements_publishes_the_scores_unrounded(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    entry = score_something(tiny(folder))
    assert entry.scores.pop("nDCG@10") == 0.123
    assert set(entry.scores.values()) == {0.12}  # the other measures have steps
    tiny(folder, hidden=False)
    entry.refresh_from_db()
    assert entry.scores["nDCG@10"] == 0.123456
    assert set(entry.scores) == {*DEFAULT_MEASURES, "Judged@10"}


def test_what_was_open_cannot_be_hidden_again(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    tiny(folder, hidden=False)
    with pytest.raises(InvalidContent, match="the judgments of tiny are already open"):
        tiny(folder, hidden=True)


def test_what_scores_mean_cannot_change_under_them(tmp_path: Path) -> None:
    folder = write_folder(tmp_path)
    score_something(tiny(folder))
    with pytest.raises(InvalidContent, match="relevance_level cannot change: tiny has entries scored with 1"):
        tiny(folder, relevance_level=2)


def test_a_collecting_dataset_needs_no_judgements_and_takes_them_later(tmp_path: Path) -> None:
    collecting = tiny(write_folder(tmp_path / "1", {"qrels/test.tsv": None}), collecting=True)
    assert collecting.dataset.state == Dataset.State.COLLECTING
    assert collecting.qrels is None
    assert collecting.baseline_requested  # a pool may be drawn from it
    judged = tiny(write_folder(tmp_path / "2"))
    assert judged.version == collecting.version
    assert judged.baseline_requested
    mark_published(judged.dataset)
    assert Dataset.objects.get(slug="tiny").state == Dataset.State.PUBLISHED


def test_empty_judgements_are_taken_while_collecting(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, {"qrels/test.tsv": "query-id\tcorpus-id\tscore\n"})
    assert tiny(folder, collecting=True).qrels is None


def test_a_reported_dataset_gains_a_version_and_keeps_its_reported_entries(tmp_path: Path) -> None:
    load_reported()
    imported = import_dataset(write_folder(tmp_path), ImportOptions(slug="nfcorpus"))
    dataset = Dataset.objects.get(slug="nfcorpus")
    assert (dataset.name, dataset.state, dataset.hidden) == ("NFCorpus", Dataset.State.REPORTED, True)
    assert imported.baseline_requested
    assert dataset.entries.filter(provenance=Entry.Provenance.REPORTED).count() == 10
    mark_published(dataset)
    load_reported()
    dataset.refresh_from_db()
    assert (dataset.state, dataset.measures) == (Dataset.State.PUBLISHED, ["nDCG@10", "R@100", "R@1000"])


def test_progress_tells_every_stage(tmp_path: Path) -> None:
    stages: list[str] = []
    import_dataset(
        write_zip(tmp_path / "tiny.zip"),
        ImportOptions(slug="tiny"),
        lambda stage, share: stages.append(stage),
    )
    assert list(dict.fromkeys(stages)) == [
        "expanding corpus.jsonl", "expanding queries.jsonl", "expanding qrels-test.tsv", "expanding qrels-train.tsv",
        "queries", "corpus", "document ids", "test qrels", "train qrels", "storing",
    ]  # fmt: skip


def test_a_zip_of_windows_powershell_is_imported(tmp_path: Path) -> None:
    path = tmp_path / "tiny.zip"
    with ZipFile(path, "w") as archive:
        for name, content in good_files().items():
            archive.writestr(f"tiny\\{name}".replace("/", "\\"), content)
        archive.writestr("tiny\\desktop.ini", "x")
    imported = tiny(path)
    assert imported.version.statistics["documents"] == 5


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
def test_a_listed_set_of_documents_stands_for_documents_that_may_not_be_kept(tmp_path: Path, zipped: bool) -> None:
    ids = "".join(f"d{number}\n" for number in range(1, 6))
    changes = {"corpus.jsonl": None, "document-ids.txt": ids}
    source = write_zip(tmp_path / "tiny.zip", changes) if zipped else write_folder(tmp_path, changes)
    imported = tiny(source, runs_only=True)
    target = scoring_target(imported.version)
    assert target.document_ids is not None
    assert len(target.document_ids) == 5
    assert imported.dataset.state == Dataset.State.PUBLISHED


def test_documents_of_a_runs_only_dataset_are_checked_and_not_kept(tmp_path: Path) -> None:
    imported = tiny(write_folder(tmp_path), runs_only=True)
    assert imported.version.corpus_sha256 == ""
    assert set(imported.version.files.values_list("kind", flat=True)) == {"queries", "document_ids", "qrels"}


def test_trec_covid_round_one_is_published_at_once_and_its_baseline_run_is_scored(
    shared_folder: Path,
) -> None:
    folder = shared_folder / "data" / "trec-covid-round1"
    run = folder / "runs" / "PS-r1-bm25all.txt.gz"
    options = ImportOptions(slug="tc1", hidden=False, runs_only=True)
    imported = import_dataset(folder, options)
    assert imported.dataset.state == Dataset.State.PUBLISHED
    assert imported.qrels is not None
    assert imported.qrels.statistics["judgements"] == 8691
    assert not results_asked_for()
    named = import_dataset(folder, ImportOptions(slug="tc1", baseline=run))
    assert named.changes == ("baseline run",)
    (request,) = results_asked_for()
    assert request.kind == WorkRequest.Kind.SCORE
    assert request.payload["baseline"] is True
    assert request.payload["tag"] == "PS-r1-bm25all"
    assert request.payload["lines"] == 18661
    with open_run(request.payload["run_sha256"]) as text:
        assert text.readline().split()[:2] == [b"1", b"Q0"]


def test_a_baseline_run_on_hidden_judgements_is_recorded_as_a_comparison(tmp_path: Path) -> None:
    ids = "".join(f"d{number}\n" for number in range(1, 6))
    alone = {"corpus.jsonl": None, "document-ids.txt": ids, "qrels/train.tsv": None}
    tiny(write_folder(tmp_path / "1", alone), runs_only=True)
    run = tmp_path / "guess.txt"
    run.write_text("".join(f"q{number} Q0 d1 1 2.5 guess\n" for number in range(1, 4)))
    curator = make_a_curator()
    unjudged = write_folder(tmp_path / "2", {**alone, "qrels/test.tsv": None})
    with acting(curator, "a baseline"):
        assert tiny(unjudged, runs_only=True, collecting=True, baseline=run).changes == ("baseline run",)
    compared = AuditRecord.objects.get(action=COMPARED)
    assert (compared.actor, compared.reason, compared.after) == (curator, "a baseline", {"qrels": 1})


@pytest.mark.parametrize(("visibility", "named"), [("public", " (q2)"), ("participants", ""), ("curators", "")])
def test_a_report_names_missing_queries_only_where_everyone_may_see_them(
    tmp_path: Path, visibility: str, named: str
) -> None:
    imported = tiny(write_folder(tmp_path), queries_visibility=visibility)
    run = tmp_path / "run.txt"
    run.write_text("q1 Q0 d1 1 2.5 mine\n")
    for qrels in (None, imported.qrels):
        problem, shallow = check_run(run, scoring_target(imported.version, qrels=qrels)).problems
        assert shallow.code == "shallow"
        assert problem.message.startswith("1 of the 2 queries of the dataset are missing; ")
        assert problem.message.endswith(f"score 0{named}")


def test_a_run_that_is_on_the_board_becomes_the_baseline_itself(tmp_path: Path) -> None:
    folder, run = write_folder(tmp_path), tmp_path / "mine.txt"
    imported = tiny(folder, runs_only=True, hidden=False)
    run.write_text("q1 Q0 d1 1 2.5 mine\n")
    shown = score_something(imported, sha256=store_run(run).sha256, baseline=False)
    named = tiny(folder, baseline=run)
    assert (named.changes, named.baseline_requested) == (("baseline run",), False)
    assert not results_asked_for()
    shown.refresh_from_db()
    assert shown.is_baseline
    assert tiny(folder, baseline=run).changes == ()
    assert [entry.pk for entry in imported.dataset.entries.all()] == [shown.pk]
