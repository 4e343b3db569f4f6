"""The boards of current figures: every figure is that of its source, and only comparable ones are ranked together."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.boards.model import Board
from leaderboard.boards.pages import benchmark_page, dataset_page
from leaderboard.boards.state import BoardState
from leaderboard.comparison.leaders import board_cards
from leaderboard.core.measures import better
from leaderboard.importing.reported import tables
from leaderboard.importing.reported.loader import load_reported as load_tables
from leaderboard.models import Benchmark, Dataset, Entry, System
from leaderboard.results.publishing.descriptions import refresh_training, system_changed
from leaderboard.results.values import training_exposure
from tests.factories import make_user
from tests.leaderboard.entries import score, scored_dataset
from tests.pages import one_line
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

SHARED = Path(os.environ.get("RUNBOARD_SHARED") or Path(__file__).resolve().parents[3].parent / "shared")
FIGURES = SHARED / "reference" / "2026"
#: File of published figures → rows that no board shows: agents, answers on other splits, and parts of CQADupStack.
FILES = {
    "mteb-eng-v2-retrieval.csv": "", "mteb-eng-v2-retrieval-partial.csv": "", "beir-mteb-2026.csv": "",
    "mteb-recall-at-100.csv": "", "nanobeir.csv": "", "bright.csv": "", "bright-pro.csv": "",
    "contriever-seven.csv": "", "beir-pyserini.csv": "cqadupstack-(?!gaming|unix)", "miracl.csv": "", "lotte.csv": "",
    "xor-tydi.csv": "drdecr-model-card", "browsecomp-plus.csv": "agents|browsecomp-plus-leaderboard",
}  # fmt: skip
#: Names of datasets in the files that are not those of the catalog.
RENAMED = {
    "nano-climate-fever": "nano-climatefever",
    "nano-fiqa": "nano-fiqa2018",
    "nano-quora": "nano-quoraretrieval",
}
#: Benchmark → rows with a mean, all rows, and the best mean with its system.
BOARDS = {
    "mteb-eng-v2": (71, 127, "Qwen/Qwen3-Embedding-8B", 0.694402),
    "beir-mteb": (32, 128, "voyageai/voyage-3-m-exp", 0.703282),
    "bright-pro": (19, 19, "AQ-MedAI/Diver-Retriever-4B-1020", 0.558821),
    "nanobeir": (11, 18, "codefuse-ai/F2LLM-v2-1.7B", 0.660008),
    "miracl": (5, 6, "Hybrid of BM25 and mDPR", 0.580806),
    "contriever-seven": (6, 6, "BAAI/bge-base-en-v1.5", 0.577814),
    "lotte-search": (6, 6, "ColBERTv2", 0.7198),
    "lotte-forum": (6, 6, "ColBERTv2", 0.6474),
}


def read(name: str) -> Iterator[dict[str, str]]:
    with (FIGURES / name).open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


def published() -> dict[tuple[str, str, str, str], set[float]]:
    """(dataset, system, configuration, measure) → values in the files, without doubtful ones."""
    doubtful = {(row["system"], row["dataset"], row["configuration"], row["measure"]) for row in read("doubtful.csv")}
    values: dict[tuple[str, str, str, str], set[float]] = {}
    for name, omitted in FILES.items():
        for row in read(name):
            key = row["system"], row["dataset"], row["configuration"]
            if omitted and re.search(omitted, f"{row['source']} {row['benchmark']} {row['dataset']}"):
                continue
            if not doubtful.isdisjoint([(*key, row["measure"]), (*key, "nDCG@10")]):
                continue
            configuration = row["configuration"]
            if row["source"] == "mteb-results":  # Results of several revisions of a model are one row of a board.
                configuration = "v1" if "task BrightRetrieval" in configuration else ""
            place = RENAMED.get(row["dataset"], row["dataset"]), row["system"], configuration, row["measure"]
            values.setdefault((row["source"] + place[0], *place[1:]), set()).add(float(row["value"]))
    return values


@pytest.mark.skipif(not FIGURES.is_dir(), reason=f"no {FIGURES} (RUNBOARD_SHARED names the folder with figures)")
def test_every_figure_is_that_of_its_source_and_doubtful_ones_are_left_out() -> None:
    shown: dict[tuple[str, str, str, str], set[float]] = {}
    papers = {row.place for row in _scores_of_papers()}
    for row in tables.scores():
        place = row.place
        if place in papers:
            continue
        is_v1 = place.source == "mteb-bright-v1"
        key = f"{'mteb-results' if is_v1 else place.source}{place.dataset}", place.system
        shown.setdefault((*key, "v1" if is_v1 else place.configuration, row.name), set()).add(row.value)
    expected = published()
    assert shown.keys() == expected.keys()
    assert len(shown) > 6_800
    for key, values in shown.items():
        assert len(values) == len(expected[key]) == 1, key
        assert values.pop() == pytest.approx(expected[key].pop(), abs=1e-9), key


def _scores_of_papers() -> list[tables.ReportedFigure]:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(tables, "FOLDERS", (tables.DATA,))
        return tables.scores()


def board(slug: str, **state: Any) -> Board:
    page = benchmark_page(slug, BoardState(**state))
    assert page is not None
    return page.board


def test_boards_have_the_systems_and_means_of_their_sources() -> None:
    load_reported(current=True)
    assert Entry.objects.filter(provenance="reported").count() == 4571
    for slug, (complete, total, best, mean) in BOARDS.items():
        found = board(slug)
        means = {row.entry.system: row.value("mean") for row in found.rows if row.value("mean") is not None}
        assert (len(means), found.total) == (complete, total), slug
        assert found.rows[0].entry.system == best
        assert found.rows[0].value("mean") == pytest.approx(mean, abs=5e-7), slug
    browse = {row.entry.system: row.value("browsecomp-plus-evidence") for row in board("browsecomp-plus").rows}
    assert browse["Qwen3-Embed-8B"] == 0.203
    assert board("xor-tydi").rows[0].value("xor-tydi") == 0.747
    scores = Entry.objects.get(system__name="Qwen/Qwen3-Embedding-8B", dataset__slug="arguana").scores
    assert scores == {"nDCG@10": 0.76852, "R@100": 0.99644}


def test_models_have_the_metadata_that_mteb_states() -> None:
    load_reported(current=True)
    qwen = System.objects.get(name="Qwen/Qwen3-Embedding-8B", source__key="mteb-results")
    assert (qwen.parameter_count, qwen.dimension, qwen.maximum_length) == (7567295488, 4096, 32768)
    assert (qwen.licence, qwen.year, qwen.open_weights, qwen.closed_api) == ("apache-2.0", 2025, True, False)
    trained = {slug: Entry.objects.get(system=qwen, dataset__slug=slug).training for slug in ("msmarco", "arguana")}
    assert trained == {"msmarco": "in-domain", "arguana": "zero-shot"}
    nano = Entry.objects.get(system__name="infly/inf-retriever-v1", dataset__slug="nano-msmarco")
    assert nano.training == "in-domain", "the dataset is a part of MS MARCO"
    assert System.objects.filter(name="voyageai/voyage-3", closed_api=True).exists()


#: Dataset of the models in MTEB's repository → names of training data that are the same collection, as pattern.
TRAINING_NAMES = {
    "arguana": "arguana.*", "climate-fever": "climate-?fever.*", "cqadupstack": "cqadupstack.*", "fever": "fever.*",
    "dbpedia-entity": "dbpedia.*", "fiqa": "fiqa.*", "hotpotqa": "hotpotqa.*", "msmarco": "msmarco(?!v2).*",
    "nfcorpus": "nfcorpus.*", "nq": "nq.*", "quora": "quora.*|qqp", "scidocs": "scidocs.*", "scifact": "scifact.*",
    "trec-covid": "treccovid.*", "webis-touche2020": "touche2020.*",
}  # fmt: skip


def original(slug: str) -> str:
    """The dataset of the BEIR paper, or the domain of BRIGHT, that a dataset repeats."""
    short = slug.removeprefix("nano-").removesuffix("-hard-negatives").removesuffix("-v3").replace("-pro-", "-")
    renamed = {"climatefever": "climate-fever", "dbpedia": "dbpedia-entity", "fiqa2018": "fiqa"}
    renamed |= {"quoraretrieval": "quora", "touche2020": "webis-touche2020"}
    return "cqadupstack" if short.startswith("cqadupstack") else renamed.get(short, short)


def training_tasks(model: str) -> set[str]:
    """Training tasks that a model and the models that it was adapted from declare."""
    meta = tables.models().get(model, {})
    return {*(meta.get("training_datasets") or ())} | (
        training_tasks(meta["adapted_from"]) if "adapted_from" in meta else set()
    )


def test_a_model_is_in_domain_on_its_training_data_in_any_spelling_or_variant_and_on_those_of_its_parent() -> None:
    load_reported(current=True)
    entries = Entry.objects.filter(source__key__startswith="mteb-").select_related("system", "dataset")
    trainings = {(entry.system.name, entry.dataset.slug, entry.source_id): entry.training for entry in entries}
    for (model, slug, _), training in trainings.items():
        base = original(slug)
        pattern = TRAINING_NAMES.get(base, f"{base}retrieval".replace("-", ""))
        matches = [
            task
            for task in training_tasks(model)
            if re.fullmatch(f"(nano)?({pattern})", task.replace("-", ""), re.IGNORECASE)
        ]
        assert (training == "in-domain") == bool(matches), (model, slug, matches)
    assert len(trainings) > 3_000
    for name, field in (("mteb-eng-v2", "hotpotqa-hard-negatives"), ("beir-mteb", "hotpotqa")):
        in_domain = {model for (model, slug, _), kind in trainings.items() if (slug, kind) == (field, "in-domain")}
        arctic = "Snowflake/snowflake-arctic-embed-l"
        assert {arctic, "nomic-ai/nomic-embed-text-v1"} <= in_domain
        rows = {row.entry.system: row for row in board(name).rows}
        assert {row.entry.system for row in rows.values() if "‡" in row[field].mark} == in_domain & rows.keys()
        rows = {row.entry.system: row for row in board(name, zero_shot=True).rows}
        assert not any(rows[model].value(field) for model in in_domain & rows.keys())


def test_a_correction_of_training_data_changes_the_marks_of_reported_results(client: Client) -> None:
    load_reported(current=True)
    system = System.objects.get(name="thenlper/gte-base", source__key="mteb-results")
    system.training_declared, system.training_datasets = True, ["Sci-Fact"]
    system.save()
    system_changed(system)
    trainings = dict(system.entries.values_list("dataset__slug", "training"))
    assert [slug for slug, training in trainings.items() if training == "in-domain"] == ["scifact"]
    assert "SciFact</a><sup>‡</sup>" in client.get(system.get_absolute_url()).content.decode()
    system.entries.update(training="zero-shot")  # An earlier version of Runboard matched exact names only.
    refresh_training()
    assert dict(system.entries.values_list("dataset__slug", "training")) == trainings


@pytest.mark.parametrize(
    ("trained_on", "slug", "name", "training"),
    [
        ("hotpot-qa", "hotpotqa", "HotpotQA", "in-domain"),
        ("FEVER-HN", "nano-fever", "NanoFEVER", "in-domain"),
        ("Touche2020-NL", "webis-touche2020-v3", "Touché-2020 v3", "in-domain"),
        ("MIRACLRetrievalHardNegatives", "miracl-de", "MIRACL: German", "in-domain"),
        ("cqadupstack-unix", "cqadupstack", "CQADupStack", "in-domain"),
        ("cqadupstack-unix", "cqadupstack-gaming", "CQADupStack: gaming", "zero-shot"),
        ("miracl-fa", "miracl-de", "MIRACL: German", "zero-shot"),
        ("nq", "nq-open", "NQ (open domain)", "zero-shot"),
        ("BrightBiologyRetrieval", "bright-pro-biology", "BRIGHT-Pro: Biology", "in-domain"),
        ("BrightBiologyRetrieval", "bright-pony", "BRIGHT: Pony", "zero-shot"),
    ],
)
def test_names_of_training_data_match_the_same_collection_only(
    trained_on: str, slug: str, name: str, training: str
) -> None:
    system = System(training_declared=True, training_datasets=[trained_on])
    assert training_exposure(system, Dataset(slug=slug, name=name)) == training


def test_values_on_other_revisions_of_a_dataset_are_shown_and_not_averaged(client: Client) -> None:
    load_reported(current=True)
    row = next(row for row in board("mteb-eng-v2").rows if row.entry.system == "openai/text-embedding-3-small")
    cell = row["arguana"]
    assert (row.value("mean"), cell.value, cell.text, cell.mark) == (None, None, "0.555", "°")
    found = dataset_page("arguana", BoardState())
    assert found is not None
    groups: dict[str, list[int]] = {}
    for row in found.board.rows:
        if row.rank is not None:
            groups.setdefault(row.entry.comparison_group, []).append(row.rank)
    assert {"reported:beir-2021", "reported:pyserini-2cr-beir", "reported:mteb-results:unknown"} < groups.keys()
    assert all(ranks[0] == 1 and ranks == sorted(ranks) for ranks in groups.values())
    page = client.get("/datasets/arguana/").content.decode()
    assert "Reported by MTEB 2026, dataset revision c22ab2a51041: ranked separately" in page
    assert "Reported by MTEB 2026, dataset revision unknown: ranked separately" in page
    assert "Reported by Pyserini 2026: ranked separately" in page


def test_sources_of_bright_are_ranked_apart(client: Client) -> None:
    load_reported(current=True)
    rows = [row for row in board("bright").rows if row.rank is not None]
    ranks: dict[str, list[int]] = {}
    for row in rows:
        ranks.setdefault(row.ranking, []).append(row.rank or 0)
    assert len(ranks) == 8
    assert all(found[0] == 1 and found == sorted(found) for found in ranks.values())
    assert [row.entry.system for row in rows if row.value("borda") is not None and row.rank == 1].count("DIVER V2") == 1
    assert all((row.value("borda") or 0) <= 12 * (len(ranks[row.ranking]) - 1) for row in rows)
    page = client.get("/benchmarks/bright/").content.decode()
    assert "Reported by AQ-MedAI 2025: ranked separately" in page
    assert "115 reported in 8 sources" in " ".join(page.split())


def test_the_best_of_one_source_is_never_called_the_best_of_a_board_with_several(client: Client) -> None:
    load_reported(current=True)
    whole, other = "Best reported by AQ-MedAI 2025", "Best of other sources: INF-X-Retriever, 0.634, not tested ("
    summary = board("bright").summary
    assert summary is not None
    assert (summary.label, summary.name) == (whole, "DIVER V2")
    assert other in summary.text
    assert "among results of AQ-MedAI 2025" in summary.headline
    assert client.get("/").content.decode().count(f"{whole}:") == 1
    for address in ("/benchmarks/", "/benchmarks/bright/"):
        assert whole in client.get(address).content.decode()
    row = next(row for row in board("bright").rows if row.entry.system == "INF-X-Retriever")
    page = re.sub(r"<[^>]+>|\s+", " ", client.get(f"/systems/{row.entry.slug}/").content.decode())
    page = " ".join(page.split())
    assert re.search(r"1 of \d+ reported by .*2026", page)
    assert re.search(r"Ranked among : results reported by \S+ \d+", page)
    page = one_line(client.get("/systems/baai-bge-base-en-v1-5-mteb-results/").content.decode())
    better_than = r"Better than the baseline<i>:</i></small> <b>on 11 of 12 datasets with a comparable baseline ?"
    assert re.search(rf"{better_than}\(not tested\)<i>", page)
    for card in (*board_cards().benchmarks, *board_cards().datasets):
        summary, reported = card.board.summary, [row for row in card.board.rows if row.ranked_in == "reported"]
        key = card.board.sort if card.board.sorts else card.board.measure
        values = [value for row in reported if isinstance(value := row.value(key), float)]
        if summary is not None and summary.label == "Best reported" and better(card.board.measure) != "lower":
            assert summary.score == max(values), card.about["slug"]


def test_what_the_makers_of_a_model_report_is_marked_everywhere(client: Client) -> None:
    load_reported(current=True)
    system = "openbmb/MiniCPM-Embedding"
    for address, key in (("/datasets/scifact/", "nDCG@10"), ("/benchmarks/beir-mteb/", "scifact")):
        page = client.get(f"{address}?columns=effectiveness").content.decode()
        assert "<dt>†</dt><dd>self-reported: published by the makers of the model" in page
        rows = csv.DictReader(io.StringIO(client.get(f"{address}board.csv").content.decode()))
        row = next(row for row in rows if row["system"] == system)
        assert {"nDCG@10": "nDCG@10", "scifact": "SciFact"}[key] in row["self_reported"].split("; ")
        answer = client.get(f"/api/v1{address}board/").json()
        row = next(row for row in answer["rows"] if row["system"] == system)
        assert row["marks"][key] == "†"
    qwen = next(row for row in board("beir-mteb").rows if row.entry.system == "Qwen/Qwen3-Embedding-8B")
    assert not any("†" in cell.mark for cell in qwen.cells.values())


def test_results_without_a_revision_of_the_model_are_marked_everywhere(client: Client) -> None:
    load_reported(current=True)
    lacking = {
        (place.dataset, place.system)
        for row in tables.scores()
        if (place := row.place).source == "mteb-results" and "no_revision_available" in row.locator
    }
    rows = {row.entry.system: row for row in board("beir-mteb").rows}
    cells = {(key, name) for name, row in rows.items() for key, cell in row.cells.items() if "¶" in cell.mark}
    columns = {column.key for column in board("beir-mteb").columns}
    assert len(cells) > 50
    assert cells == {(slug, name) for slug, name in lacking if name in rows and slug in columns}
    for address in ("/datasets/scifact/", "/benchmarks/beir-mteb/"):
        page = client.get(f"{address}?columns=effectiveness").content.decode()
        assert "<dt>¶</dt><dd>revision of the model unknown" in page
        assert "\\P{}" in client.get(f"{address}board.tex").content.decode()


def test_home_and_the_list_lead_with_current_boards(client: Client) -> None:
    load_reported(current=True)
    dataset = scored_dataset(name="Quokkas")
    score(dataset, "BM25", baseline=True, ndcg=0.4)
    current = ["MTEB(eng, v2) retrieval", "BRIGHT", "BEIR by MTEB", "BRIGHT-Pro", "NanoBEIR", "MIRACL"]
    shown = {"/": current[:4], "/benchmarks/": current}
    for address, expected in shown.items():
        page = client.get(address).content.decode()
        names = re.findall(r'<(?:h3|th scope="row")><a [^>]*>(.*?)</a>', page)
        assert [name for name in names if name in current] == expected
        assert names[: len(expected)] == expected
        assert page.index(f">{expected[-1]}<") < page.index("Quokkas</a></")
    assert names.index("BrowseComp-Plus retrieval") < names.index("LoTTE (search queries)") < names.index("BEIR")


def test_pages_tell_staff_how_their_data_are_imported(client: Client, admin_client: Client) -> None:
    load_reported(current=True)
    for address in ("/benchmarks/miracl/", "/datasets/nano-nq/"):
        assert "manage.py" not in client.get(address).content.decode()
    for slug in ("mteb-eng-v2", "miracl", "nanobeir", "lotte-search", "beir-mteb", "contriever-seven", "bright-pro"):
        page = " ".join(admin_client.get(f"/benchmarks/{slug}/").content.decode().split())
        assert f"<code>manage.py import_benchmark {slug}</code>" in page
        assert "It accepts no runs for:" in page
    page = " ".join(admin_client.get("/benchmarks/browsecomp-plus/").content.decode().split())
    assert "import_benchmark" not in page
    assert "encrypted on the hub" in page
    page = " ".join(admin_client.get("/datasets/nano-nq/").content.decode().split())
    assert "<code>manage.py import_benchmark nanobeir --only nano-nq</code>" in page
    assert "import_benchmark" not in admin_client.get("/datasets/xor-tydi/").content.decode()


def test_pages_of_the_largest_boards_stay_small(client: Client) -> None:
    load_reported(current=True)
    for address in ("/", "/benchmarks/", "/benchmarks/mteb-eng-v2/?columns=all", "/benchmarks/beir-mteb/?columns=all"):
        assert len(client.get(address).content) < 500_000, address


REVISION = "4e423935c619ae4df87b646a3ce949610c66241c"
SOURCE = "https://github.com/embeddings-benchmark/results/blob/0123456789/results"


def write(folder: Path, model: str, revision: str, task: str, ndcg: float, **changes: Any) -> None:
    result = {
        "dataset_revision": "f" * 40, "task_name": task, "mteb_version": "2.1.0",
        "scores": {"test": [{"hf_subset": "default", "ndcg_at_10": ndcg}]}, **changes,
    }  # fmt: skip
    path = folder / model.replace("/", "__") / revision / f"{task}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(result))
    if revision != "external":
        meta = {**tables.models().get(model, {}), "name": model, "revision": revision, "n_parameters": 8}
        path.with_name("model_meta.json").write_text(json.dumps(meta))


def refresh(folder: Path, capsys: pytest.CaptureFixture[str], benchmark: str = "mteb-eng-v2") -> str:
    options = {"source": SOURCE, "benchmark": benchmark, "by": "carol@example.org", "why": "newer results"}
    call_command("import_mteb_results", str(folder), **options)
    return capsys.readouterr().out


def test_one_command_refreshes_a_board_from_a_folder_of_results(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    load_reported(current=True)
    make_user("Carol", email="carol@example.org", is_staff=True, is_superuser=True)
    qwen, new, old = "Qwen/Qwen3-Embedding-8B", "a/new", "a/old"
    write(tmp_path, qwen, REVISION, "SCIDOCS", 0.5)
    write(tmp_path, qwen, "a" * 40, "SCIDOCS", 0.6, mteb_version="3.0.0")
    write(tmp_path, qwen, "external", "SCIDOCS", 0.7)
    write(tmp_path, qwen, REVISION, "SciFact", 0.9)
    write(tmp_path, new, "b" * 40, "SCIDOCS", 0.4)
    write(tmp_path, new, "c" * 40, "SCIDOCS", 0.45, mteb_version="2.10.0")
    write(tmp_path, new, "c" * 40, "ArguAna", 99)
    before_1_11 = {"mteb_dataset_name": "SCIDOCS", "mteb_version": "1.0.2", "test": {"ndcg_at_10": 0.2}}
    write(tmp_path, old, "external", "SCIDOCS", 0)
    (tmp_path / "a__old" / "external" / "SCIDOCS.json").write_text(json.dumps(before_1_11))
    scifact = Entry.objects.get(system__name=qwen, dataset__slug="scifact").scores
    said = refresh(tmp_path, capsys)
    assert "3 figures of 3 models on 1 dataset" in said
    assert "ArguAna.json: scores.test[0].ndcg_at_10 is 99, but should be a number between 0 and 1" in said
    entries = {
        each.system.name: each for each in Entry.objects.filter(dataset__slug="scidocs", figures__0__scale="share")
    }
    assert {name: entry.scores["nDCG@10"] for name, entry in entries.items()} == {qwen: 0.5, new: 0.45, old: 0.2}
    assert {entry.configuration for entry in entries.values()} == {""}
    assert entries[old].locator == "dataset unknown; mteb 1.0.2; revision external"
    assert entries[qwen].locator == f"dataset {'f' * 12}; mteb 2.1.0; revision {REVISION[:12]}"
    assert entries[qwen].figures[0]["locator"] == f"{SOURCE}/Qwen__Qwen3-Embedding-8B/{REVISION}/SCIDOCS.json"
    assert Entry.objects.get(system__name=qwen, dataset__slug="scifact").scores == scifact, "of another benchmark"
    assert System.objects.get(name=qwen, source__key="mteb-results").parameter_count == 8
    assert load_tables()["changed"] == 0, "the next start keeps newer results"
    with pytest.raises(CommandError, match="There is no benchmark mteb"):
        refresh(tmp_path, capsys, "mteb")


def test_every_benchmark_has_its_datasets() -> None:
    load_reported(current=True)
    for slug, fields in tables.benchmarks().items():
        members = Benchmark.objects.get(slug=slug).members.order_by("position")
        assert [member.dataset.slug for member in members] == fields["members"]
    assert Dataset.objects.get(slug="miracl-sw").language == "sw"
    assert sum(path.stat().st_size for path in tables.FOLDERS[0].iterdir()) < 1_000_000
