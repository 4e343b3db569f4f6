"""The reported boards: what a visitor of a bare clone sees."""

from __future__ import annotations

from io import StringIO

import pytest
from django.core.management import call_command

from leaderboard.core.audit import acting
from leaderboard.importing.reported import tables
from leaderboard.importing.reported.loader import load_reported
from leaderboard.importing.reported.tables import published_averages
from leaderboard.models import Benchmark, Dataset, DatasetVersion, Entry, Source, System
from leaderboard.results.values import training_exposure
from leaderboard.systems.challenges import TrainingCorrection, raise_challenge, settle_challenge
from tests import reported_boards
from tests.factories import make_user

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _papers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the boards of current figures, which `test_current_boards` loads."""
    monkeypatch.setattr(tables, "FOLDERS", (tables.DATA,))


@pytest.fixture
def _loaded() -> None:
    """What the loader writes into an empty database, by itself the first time."""
    reported_boards.load_reported()


def beir_entries() -> dict[tuple[str, str], Entry]:
    """(system, dataset) → entry of the BEIR paper."""
    entries = Entry.objects.filter(source__key="beir-2021").select_related("system", "dataset")
    return {(entry.system.name, entry.dataset.slug): entry for entry in entries}


@pytest.mark.usefixtures("_loaded")
def test_beir_has_ten_systems_on_nineteen_datasets_with_both_measures() -> None:
    entries = beir_entries()
    assert len({system for system, _ in entries}) == 10
    assert len({dataset for _, dataset in entries}) == 19
    assert len(entries) == 190
    for (_, dataset), entry in entries.items():
        recall = "R_cap@100" if dataset == "trec-covid" else "R@100"
        assert {"nDCG@10", recall} <= entry.scores.keys()
        assert entry.provenance == Entry.Provenance.REPORTED
    assert entries["ColBERT", "scifact"].scores["nDCG@10"] == 0.671
    assert entries["BM25+CE", "trec-covid"].scores["nDCG@10"] == 0.757


@pytest.mark.usefixtures("_loaded")
def test_the_benchmark_counts_eighteen_and_shows_ms_marco() -> None:
    members = Benchmark.objects.get(slug="beir").members.select_related("dataset")
    assert len(members) == 19
    assert [member.dataset.slug for member in members if not member.counted] == ["msmarco"]
    assert members.get(dataset__slug="trec-covid").stand_ins == {"R@100": "R_cap@100"}


@pytest.mark.usefixtures("_loaded")
def test_differences_are_to_the_bm25_of_the_same_source() -> None:
    entries = beir_entries()
    for (system, dataset), entry in entries.items():
        baseline = Entry.objects.get(dataset=entry.dataset, comparison_group=entry.comparison_group, is_baseline=True)
        assert baseline == entries["BM25", dataset]
        assert entry.comparison_group == "reported:beir-2021"
        assert entry.is_baseline == (system == "BM25")


@pytest.mark.usefixtures("_loaded")
def test_averages_relative_to_bm25_come_within_a_point_and_a_half_of_the_printed_ones() -> None:
    # The printed averages do not follow exactly from the printed scores: relative to the mean of BM25 over the
    # eighteen datasets, DPR without NQ (its training data), they differ by 0.3 to 1.5 points.
    entries = beir_entries()
    counted = [dataset for system, dataset in entries if system == "BM25" and dataset != "msmarco"]
    for system, printed in published_averages("beir-2021", "nDCG@10").items():
        if printed.average is None:
            continue
        shown = [slug for slug in counted if entries[system, slug].training != Entry.Training.IN_DOMAIN]
        mean = sum(entries[system, slug].scores["nDCG@10"] for slug in shown)
        bm25 = sum(entries["BM25", slug].scores["nDCG@10"] for slug in shown)
        assert (mean / bm25 - 1) * 100 == pytest.approx(printed.average, abs=1.5)


@pytest.mark.usefixtures("_loaded")
def test_in_domain_marks_are_those_of_the_paper() -> None:
    marked = {key for key, entry in beir_entries().items() if entry.training == Entry.Training.IN_DOMAIN}
    trained = ["DeepCT", "SPARTA", "docT5query", "ANCE", "TAS-B", "GenQ", "ColBERT", "BM25+CE"]
    assert marked == {(system, "msmarco") for system in trained} | {("DPR", "nq")}


@pytest.mark.usefixtures("_loaded")
def test_a_system_trained_on_generated_queries_is_adapted_and_the_rest_zero_shot() -> None:
    entries = beir_entries()
    assert entries["GenQ", "fiqa"].training == Entry.Training.ADAPTED
    assert entries["BM25", "fiqa"].training == Entry.Training.ZERO_SHOT
    assert entries["TAS-B", "fiqa"].training == Entry.Training.ZERO_SHOT
    assert entries["DPR", "msmarco"].training == Entry.Training.ZERO_SHOT


@pytest.mark.usefixtures("_loaded")
def test_efficiency_stands_on_the_dataset_it_was_measured_on() -> None:
    entries = beir_entries()
    assert {slug for (_, slug), entry in entries.items() if any(f["name"] == "latency" for f in entry.figures)} == {
        "dbpedia-entity"
    }
    figures = {(f["name"], f["hardware"]): f for f in entries["TAS-B", "dbpedia-entity"].figures}
    assert (figures["latency", "GPU"]["value"], figures["latency", "GPU"]["unit"]) == (14, "ms")
    assert figures["latency", "CPU"]["as_printed"] == "125"
    assert figures["index size", ""]["unit"] == "GB per million documents"
    assert figures["dimension", ""]["value"] == 768
    assert figures["latency", "CPU"]["locator"] == "Table 3"


@pytest.mark.usefixtures("_loaded")
def test_holes_of_trec_covid_are_a_share_and_keep_what_is_printed() -> None:
    entry = beir_entries()["TAS-B", "trec-covid"]
    assert entry.scores["Hole(beir)@10"] == 0.318
    figures = {figure["name"]: figure for figure in entry.figures}
    assert (figures["Hole(beir)@10"]["scale"], figures["Hole(beir)@10"]["as_printed"]) == ("percent", "31.8")
    assert figures["nDCG@10 with holes judged"]["value"] == 0.555


@pytest.mark.usefixtures("_loaded")
def test_doubtful_latencies_are_marked_with_the_reason() -> None:
    doubtful = {
        (entry.system.name, entry.dataset.slug): figure
        for entry in Entry.objects.filter(source__key="chen-2023").select_related("system", "dataset")
        for figure in entry.figures
        if figure["doubtful"]
    }
    assert {key: figure["as_printed"] for key, figure in doubtful.items()} == {
        ("GAR+BM25", "nq-open"): "300",
        ("DPR", "nq-open"): "1800",
        ("SEAL", "nq-open"): "2100",
        ("Learned BM25 query augmentation", "entityquestions"): "0.669",
    }
    assert all(figure["doubt"] for figure in doubtful.values())


@pytest.mark.usefixtures("_loaded")
def test_answer_measures_are_not_called_success() -> None:
    entry = Entry.objects.get(system__name="SEAL", dataset__slug="nq-open")
    assert entry.scores == {"Answer@5": 0.613, "Answer@20": 0.762}


@pytest.mark.usefixtures("_loaded")
def test_what_query_augmentation_loses_without_a_part_and_how_it_transfers() -> None:
    """Tables 2 and 3 of the paper; what Table 1 has already is there once."""
    entries = {
        (entry.dataset.slug, entry.system.name.removeprefix("Learned BM25 query augmentation").strip()): entry
        for entry in Entry.objects.filter(source__key="chen-2023").select_related("system", "dataset")
    }
    least = entries["nq-open", "without BM25 scoring"]
    assert least.scores == {"Answer@5": 0.487, "Answer@20": 0.635}
    assert {each["name"]: each["value"] for each in least.figures} == {
        "latency": 0.225,
        "augmentation length": 31.861,
    }
    whole = entries["nq-open", ""]
    assert (whole.scores["Answer@20"], whole.locator) == (0.694, "Table 1, Table 2")
    assert entries["entityquestions", "(trained on NQ)"].scores == {"Answer@5": 0.542, "Answer@20": 0.656}
    assert {name: entry.scores["Answer@20"] for (slug, name), entry in entries.items() if slug == "triviaqa"} == {
        "BM25 (Pyserini)": 0.773,
        "BM25 (WordPiece)": 0.742,
        "": 0.755,
    }


@pytest.mark.usefixtures("_loaded")
def test_ms_marco_figures_are_compared_on_the_same_hardware_of_the_same_work_only() -> None:
    entries = Entry.objects.filter(dataset__slug="msmarco", source__key__in=["mackenzie-2021", "lassance-2022"])
    groups = {(entry.system.name, entry.comparison_group): entry.is_baseline for entry in entries}
    assert groups["SPLADEv2-distil", "reported:mackenzie-2021:32 CPUs, 512 GiB RAM"] is False
    assert groups["BM25", "reported:mackenzie-2021:32 CPUs, 512 GiB RAM"] is True
    assert groups["BM25", "reported:lassance-2022:64 CPUs"] is True
    alone = Entry.objects.get(system__name="ANCE", source__key="xiong-2020")
    assert not Entry.objects.filter(comparison_group=alone.comparison_group, is_baseline=True).exists()
    bm25 = entries.get(system__name="BM25", source__key="mackenzie-2021")
    assert bm25.scores == {"RR@10": 0.187}
    percent = next(figure for figure in bm25.figures if figure["name"] == "RR@10")
    assert (percent["as_printed"], percent["scale"]) == ("18.7", "percent")


@pytest.mark.usefixtures("_loaded")
def test_cost_has_a_bm25_on_every_machine() -> None:
    entries = Entry.objects.filter(source__key="santhanam-2022")
    assert entries.count() == 13
    for entry in entries:
        assert Entry.objects.filter(comparison_group=entry.comparison_group, is_baseline=True).count() == 1
    dear = entries.get(system__name="ColBERTv2-L", configuration__startswith="p3.8x1")
    assert {f["name"]: f["value"] for f in dear.figures if f["name"] != "Success@10"} == {
        "latency": 55,
        "cost": 187.24,
    }


@pytest.mark.usefixtures("_loaded")
def test_every_entry_is_cited_and_every_mark_follows_from_the_declared_training() -> None:
    for entry in Entry.objects.select_related("system", "dataset", "source"):
        assert entry.source is not None
        assert entry.source == entry.system.source
        assert entry.locator
        assert entry.training == training_exposure(entry.system, entry.dataset)
    assert all(source.bibtex.startswith(("@inproceedings{", "@misc{")) for source in Source.objects.all())
    beir = Source.objects.get(key="beir-2021")
    assert (beir.year, "Nandan Thakur" in beir.authors, "Datasets and Benchmarks" in beir.venue) == (
        2021,
        True,
        True,
    )


@pytest.mark.usefixtures("_loaded")
def test_systems_say_what_their_sources_print_and_nothing_else() -> None:
    genq = System.objects.get(slug="genq-beir-2021")
    assert len(genq.adapted_to) == 18
    assert "msmarco" not in genq.adapted_to
    assert {entry.training for entry in genq.entries.exclude(dataset__slug="msmarco")} == {"adapted"}
    assert genq.entries.get(dataset__slug="msmarco").training == "in-domain"
    dimensions = dict(System.objects.exclude(dimension=None).values_list("slug", "dimension"))
    assert (dimensions["tas-b-beir-2021"], dimensions["colbert-beir-2021"]) == (768, 128)
    assert "bm25-beir-2021" not in dimensions
    assert not System.objects.exclude(open_weights=None).exists(), "no source here says"


@pytest.mark.usefixtures("_loaded")
def test_datasets_are_named_as_ir_datasets_and_beir_name_them() -> None:
    names = dict(Dataset.objects.exclude(ir_datasets_id="").values_list("slug", "ir_datasets_id"))
    assert names["nfcorpus"] == "beir/nfcorpus/test"
    assert names["arguana"] == "beir/arguana", "one split alone is not named"
    assert names["msmarco"] == "beir/msmarco/dev"
    assert names["webis-touche2020"] == "beir/webis-touche2020/v2"
    assert "cqadupstack" not in names, "only its forums have one each"
    assert Dataset.objects.exclude(beir_name="").count() == 15
    assert Dataset.objects.get(slug="bioasq").beir_name == "", "nobody may hand it out"


@pytest.mark.usefixtures("_loaded")
def test_loading_again_changes_nothing() -> None:
    before = list(Entry.objects.order_by("pk").values())
    revisions = dict(Dataset.objects.values_list("slug", "board_revision"))
    call_command("load_reported", stdout=StringIO())
    assert list(Entry.objects.order_by("pk").values()) == before
    assert dict(Dataset.objects.values_list("slug", "board_revision")) == revisions


@pytest.mark.usefixtures("_loaded")
def test_loading_again_restores_a_changed_number() -> None:
    Entry.objects.filter(system__slug="bm25-beir-2021", dataset__slug="fiqa").update(scores={"nDCG@10": 0.9})
    assert load_reported()["changed"] == 1
    assert beir_entries()["BM25", "fiqa"].scores["nDCG@10"] == 0.236


@pytest.mark.usefixtures("_loaded")
def test_loading_again_keeps_what_a_challenge_corrected() -> None:
    entry = beir_entries()["ColBERT", "scifact"]
    doubt = raise_challenge(entry.system, make_user("Bob"), "training", "Its repository names SciFact too.")
    with acting(None, "read it"):
        settle_challenge(
            doubt,
            upheld=True,
            decision="It does.",
            correction=TrainingCorrection(True, ["msmarco", "scifact"], []),
        )
    load_reported()
    entry = beir_entries()["ColBERT", "scifact"]
    assert entry.system.training_datasets == ["msmarco", "scifact"]
    assert entry.training == "in-domain"


def test_an_imported_dataset_keeps_its_settings_and_gains_the_reported_entries() -> None:
    dataset = Dataset.objects.create(slug="nfcorpus", name="Mine", state=Dataset.State.PUBLISHED)
    DatasetVersion.objects.create(dataset=dataset, number=1, content_sha256="0" * 64, queries_sha256="0" * 64)
    load_reported()
    dataset.refresh_from_db()
    assert (dataset.name, dataset.state, dataset.hidden) == ("Mine", Dataset.State.PUBLISHED, True)
    assert dataset.reported_statistics["documents"] == 3633
    assert dataset.entries.count() == 10


@pytest.mark.usefixtures("_loaded")
def test_table_one_is_kept_as_printed() -> None:
    statistics = Dataset.objects.get(slug="trec-covid").reported_statistics
    assert (statistics["documents"], statistics["queries"], statistics["relevant_per_query"]) == (
        171332,
        50,
        493.5,
    )
    assert Dataset.objects.get(slug="msmarco").reported_statistics["queries"] == 6980
    assert Dataset.objects.get(slug="msmarco").primary_measure == "RR@10"
    assert Dataset.objects.get(slug="arguana").drop_self_matches
    assert System.objects.get(slug="bm25-beir-2021").architecture == "lexical"


def test_datasets_say_what_they_are_and_what_to_cite_and_imported_ones_keep_their_own_words() -> None:
    load_reported()
    cited = Dataset.objects.get(slug="scifact")
    assert cited.description.startswith("Scientific claims")
    assert "@inproceedings{wadden-2020," in cited.citation
    assert "https://doi.org/10.18653/v1/2020.emnlp-main.609" in cited.citation
    assert Dataset.objects.get(slug="quora").citation == "", "no publication is known of it"
    # One that was imported, with a description and nothing else.
    Dataset.objects.filter(slug="scifact").update(
        state=Dataset.State.PUBLISHED, description="Ours.", citation="", licence=""
    )
    load_reported()
    imported = Dataset.objects.get(slug="scifact")
    assert imported.description == "Ours."
    assert imported.citation == cited.citation
    assert imported.licence == "CC BY-NC 2.0"


def test_every_text_is_of_a_dataset_and_whole() -> None:
    slugs = {row.slug for row in tables.datasets()}
    for slug, text in tables.dataset_texts().items():
        assert slug in slugs
        assert text["description"].endswith(".")
        assert {"key", "title", "authors", "year", "venue"} <= text.keys() or slug == "quora"
