"""Results in MTEB's layout become reported rows, with where each number is from."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.models import AuditRecord, Dataset, Entry, Source, System
from tests.factories import make_user
from tests.leaderboard.entries import scored_dataset
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db

REVISION = "8b3219a92973c328a8e22fadcfa821b5dc75636a"
OF_DATASET = "d56462d0e63a25450459c4f213e49ffdb866f7f9"
FOLDER = f"sentence-transformers__all-MiniLM-L6-v2/{REVISION}"
SOURCE = "https://github.com/embeddings-benchmark/results/blob/main/results"
#: As mteb's public repository has it, shortened.
META = {
    "name": "sentence-transformers/all-MiniLM-L6-v2", "revision": REVISION, "release_date": "2021-08-30",
    "n_parameters": 22700000, "max_tokens": 256.0, "embed_dim": 384, "license": "apache-2.0", "open_weights": True,
    "public_training_code": None, "framework": ["Sentence Transformers", "PyTorch"],
    "reference": "https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2",
    "training_datasets": {"MSMARCO": ["train"], "SciFact": ["train"]}, "adapted_from": None, "loader": None,
}  # fmt: skip


def result(task: str = "SciFact", split: str = "test", subset: str = "default", **scores: Any) -> dict[str, Any]:
    scores = {"ndcg_at_10": 0.64508, "recall_at_100": 0.925, "nauc_ndcg_at_10_max": float("nan"), **scores}
    about = {"hf_subset": subset, "languages": ["eng-Latn"], "main_score": scores["ndcg_at_10"]}
    return {
        "dataset_revision": OF_DATASET, "task_name": task, "mteb_version": "2.26.24", "evaluation_time": 3.5,
        "scores": {split: [{**about, **scores}]},
    }  # fmt: skip


def write(folder: Path, **files: Any) -> Path:
    """Results by their tasks, beside what the model is."""
    for name, content in {"model_meta": META, "SciFact": result(), **files}.items():
        path = folder / FOLDER / f"{name}.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.fixture
def _boards() -> None:
    load_reported()
    make_user("Carol", email="carol@example.org", is_staff=True, is_superuser=True)


def run(path: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> str:
    said = {"source": SOURCE, "by": "carol@example.org", "why": "as MTEB has them", **options}
    call_command("import_mteb_results", str(path), **said)
    return capsys.readouterr().out


def refusal(path: Path, capsys: pytest.CaptureFixture[str], **options: Any) -> list[str]:
    """The lines of the refusal; nothing may be stored."""
    before = (Entry.objects.count(), Source.objects.count(), System.objects.count())
    with pytest.raises(CommandError) as refused:
        run(path, capsys, **options)
    assert (Entry.objects.count(), Source.objects.count(), System.objects.count()) == before
    return str(refused.value).splitlines()


@pytest.mark.usefixtures("_boards")
def test_results_stand_on_the_board_with_where_they_are_from(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = run(write(tmp_path, Banking77Classification={}, MSMARCO=result("MSMARCO", "dev")), capsys)
    assert "4 figures of 1 model on 2 datasets" in said
    assert "no dataset on this site matches the task: Banking77Classification." in said
    entry = Entry.objects.get(source__key="mteb-results", dataset__slug="scifact")
    assert entry.scores == {"nDCG@10": 0.64508, "R@100": 0.925}
    assert entry.configuration == "revision 8b3219a92973"
    assert entry.locator == f"dataset {OF_DATASET[:12]}; mteb 2.26.24; revision 8b3219a92973"
    assert (entry.provenance, entry.training) == ("reported", "in-domain")
    system = entry.system
    assert (system.parameter_count, system.dimension, system.maximum_length) == (22_700_000, 384, 256)
    assert (system.architecture, system.licence, system.year) == ("dense", "apache-2.0", 2021)
    assert system.training_datasets == ["msmarco", "scifact"]
    page = client.get(f"/systems/{system.slug}/").content.decode()
    assert f'href="{SOURCE}/{FOLDER}/SciFact.json"' in page
    assert entry.locator in page
    board = client.get("/datasets/scifact/?provenance=reported").content.decode()
    assert "sentence-transformers/all-MiniLM-L6-v2" in board
    assert system.source is not None
    assert system.source.bibtex.startswith("@misc{mteb-results,\n  title = {{Results of MTEB}},")
    record = AuditRecord.objects.filter(action="reported figure entered", dataset__slug="scifact").first()
    assert record is not None
    assert (record.actor_name, record.after["address"]) == ("Carol", f"{SOURCE}/{FOLDER}/SciFact.json")


@pytest.mark.usefixtures("_boards")
def test_other_values_replace_the_old_ones_and_the_same_change_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(write(tmp_path), capsys)
    revision = Dataset.objects.get(slug="scifact").board_revision
    run(write(tmp_path), capsys)
    assert Dataset.objects.get(slug="scifact").board_revision == revision
    newer = {**result(ndcg_at_10=0.7), "mteb_version": "2.27.0"}
    run(
        write(tmp_path, SciFact=newer, model_meta={**META, "embed_dim": [128, 384, 256], "n_parameters": 5}),
        capsys,
    )
    entry = Entry.objects.get(source__key="mteb-results")
    assert (entry.scores["nDCG@10"], entry.locator) == (
        0.7,
        f"dataset {OF_DATASET[:12]}; mteb 2.27.0; revision 8b3219a92973",
    )
    assert (entry.system.dimension, entry.system.parameter_count) == (384, 5)


@pytest.mark.usefixtures("_boards")
def test_results_on_two_revisions_of_a_dataset_are_not_compared(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bm25 = {**META, "name": "mteb/baseline-bm25s", "revision": "0_1_10", "model_type": ["dense"]}
    run(write(tmp_path / "a", model_meta=bm25, NQ=result("NQ")), capsys)
    other = {**result("NQ", ndcg_at_10=0.5), "dataset_revision": "f" * 40}
    run(write(tmp_path / "b", NQ=other), capsys)
    rows = Entry.objects.filter(source__key="mteb-results").order_by("dataset__slug", "system__name")
    nq, scifact = rows.filter(dataset__slug="nq"), rows.filter(dataset__slug="scifact")
    assert len({each.comparison_group for each in nq}) == 2
    assert len({each.comparison_group for each in scifact}) == 1
    assert [each.is_baseline for each in scifact] == [True, False]
    assert scifact[0].system.architecture == "lexical"


@pytest.mark.usefixtures("_boards")
def test_everything_that_is_wrong_is_told_in_one_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    twice = result("NFCorpus")
    twice["scores"]["test"] *= 2
    write(
        tmp_path,
        ArguAna='{"scores": ',
        FiQA2018=result("FiQA2018", ndcg_at_10=36.9),
        TRECCOVID=result("TRECCOVID", ndcg_at_10=float("nan")),
        NFCorpus=twice,
        NQ=result("NQ", "dev"),
        FEVER=result("FEVER", subset="de"),
        QuoraRetrieval=result("Quora"),
        HotpotQA={**result("HotpotQA"), "scores": {"test": [{"hf_subset": "default", "accuracy": 1.0}]}},
        DBPedia='{"task_name": "DBPedia", "task_name": "DBPedia"}',
        Touche2020={**result("Touche2020"), "dataset_revision": 5},
    )
    (tmp_path / "other" / "1").mkdir(parents=True)
    (tmp_path / "other" / "1" / "SciFact.json").write_text(json.dumps(result()))
    lines = refusal(tmp_path, capsys)
    assert len(lines) == 12
    expected = (
        "ArguAna.json: it is not JSON",
        "FiQA2018.json: scores.test[0].ndcg_at_10 is 36.9, but should be a number between 0 and 1",
        "TRECCOVID.json: scores.test[0].ndcg_at_10 is NaN",
        "NFCorpus.json: scores.test has the subset default 2 times",
        "NQ.json: scores has dev, but NQ is judged on test",
        "FEVER.json: scores.test has the subsets de, and not default or en",
        'QuoraRetrieval.json: task_name is "Quora"',
        "HotpotQA.json: scores.test[0] has none of the measures of HotpotQA, ndcg_at_10",
        'DBPedia.json: "task_name" occurs twice',
        "Touche2020.json: dataset_revision and mteb_version should be text",
        "other/1/model_meta.json: the file is missing",
    )
    for each in expected:
        assert any(each in line for line in lines), each


@pytest.mark.usefixtures("_boards")
@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ({"name": "MiniLM"}, 'name is "MiniLM", but should be organisation/model'),
        ({"name": "a/b\u202e\nc"}, "but should be organisation/model"),
        ({"n_parameters": "many"}, 'n_parameters is "many", but should be a whole number'),
        (
            {"n_parameters": float("inf"), "embed_dim": [True]},
            "Infinity, but should be a whole number; embed_dim is",
        ),
        ({"max_tokens": "512"}, 'max_tokens is "512", but should be a whole number'),
        ({"license": {"a": 1}}, 'license is {"a": 1}, but should be text'),
        ({"release_date": "9999-99-99"}, "but should be a date such as 2021-08-30"),
        ({"reference": "nowhere", "adapted_from": "x" * 130}, "it has 130). reference: Enter a valid URL."),
        ({"model_type": ["oracle"]}, 'model_type is ["oracle"], but should be one of sparse, dense'),
        ({"training_datasets": 7}, "training_datasets is 7, but should be names of tasks"),
        ({"citation": "\ud800"}, "it is not JSON: 'utf-8' codec can't encode"),
    ],
)
def test_a_model_that_no_system_can_be_is_refused_by_its_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], said: dict[str, Any], expected: str
) -> None:
    (_, line) = refusal(write(tmp_path, model_meta={**META, **said}), capsys)
    assert f"{FOLDER}/model_meta.json: " in line
    assert expected in line


@pytest.mark.usefixtures("_boards")
def test_an_answer_names_a_hundred_problems_and_counts_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(150):
        folder = tmp_path / f"a__b{number}" / "1"
        folder.mkdir(parents=True)
        (folder / "SciFact.json").write_text("{}")
    lines = refusal(tmp_path, capsys)
    assert (len(lines), lines[-1]) == (102, "- and 50 more")
    unknown = {f"Task{number:03}": {} for number in range(101)}
    said = run(write(tmp_path / "results", **unknown), capsys)
    assert "Task099, and 1 more." in said


@pytest.mark.usefixtures("_boards")
def test_a_task_is_given_its_dataset_where_its_name_does_not_tell_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    scored_dataset(slug="owls", name="Owls of Europe", language="de")
    written = result("OwlRetrieval", "dev", "de-x")
    (tmp_path / FOLDER).mkdir(parents=True)
    write(tmp_path, OwlRetrieval=written)
    (tmp_path / FOLDER / "SciFact.json").unlink()
    (_, line) = refusal(tmp_path, capsys)
    assert "no results for datasets on this site" in line
    assert "OwlRetrieval" in line
    assert "on 1 dataset" in run(tmp_path, capsys, tasks=["OwlRetrieval=owls:dev:de-x"])
    stored = Entry.objects.get(dataset__slug="owls").locator
    expected = f"split dev; dataset {OF_DATASET[:12]}; mteb 2.26.24; revision 8b3219a92973"
    assert stored == expected, "the board is judged on another split"
    (_, line) = refusal(write(tmp_path), capsys, tasks=["OwlRetrieval=scifact:dev:de-x"])
    assert "have the same model, revision, and dataset. Keep only one" in line
    assert "url: Enter a valid URL." in refusal(tmp_path, capsys, source="results")[0]


@pytest.mark.usefixtures("_boards")
def test_a_curator_sends_a_zip_of_results(client: Client, tmp_path: Path) -> None:
    client.force_login(make_user("Dan", is_staff=True, is_superuser=True))
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for path in write(tmp_path).rglob("*.json"):
            archive.write(path, f"results/{path.relative_to(tmp_path)}")
    new = {"title": "MTEB", "authors": "MTEB", "year": 2026, "why": "as MTEB has them"}

    def send(**fields: Any) -> Any:
        file = SimpleUploadedFile("results.zip", packed.getvalue())
        return client.post("/admin/leaderboard/entry/report/?by=mteb", {**new, **fields, "mteb": file})

    assert "The publication needs a URL" in send().content.decode()
    address = "https://example.org/mteb"
    assert send(url=address).status_code == 302
    entry = Entry.objects.get(source__key="mteb-2026")
    assert entry.figures[0]["locator"] == f"{address}/results/{FOLDER}/SciFact.json"


@pytest.mark.long  # mteb takes seconds to import
@pytest.mark.usefixtures("_boards")
def test_what_mteb_itself_writes_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    import mteb
    from mteb.cache import ResultCache
    from mteb.results import TaskResult

    cache = ResultCache(tmp_path)
    names = ("sentence-transformers/all-MiniLM-L6-v2", "mteb/baseline-bm25s", "colbert-ir/colbertv2.0")
    for number, name in enumerate(names):
        model = mteb.get_model_meta(name)
        for task in map(mteb.get_task, ("SciFact", "NFCorpus", "MSMARCO", "STS12")):
            (split,) = task.metadata.eval_splits
            scores = {"ndcg_at_10": 0.25 + number / 8, "recall_at_100": 0.5, "main_score": 0.25 + number / 8}
            done = TaskResult.from_task_results(task, {split: {"default": scores}}, 1.5)  # type: ignore[dict-item]
            cache.save_to_cache(done, model)
    assert "18 figures of 3 models on 3 datasets" in run(tmp_path / "results", capsys)
    entries = {
        each.system.name: each for each in Entry.objects.filter(source__key="mteb-results", dataset__slug="scifact")
    }
    assert {name: each.scores["nDCG@10"] for name, each in entries.items()} == dict(
        zip(names, (0.25, 0.375, 0.5), strict=True)
    )
    assert [entries[name].system.architecture for name in names] == ["dense", "lexical", "late-interaction"]
    assert entries["mteb/baseline-bm25s"].is_baseline
    revision = mteb.get_task("SciFact").metadata.revision
    start = f"dataset {revision[:12]}; mteb {mteb.__version__}; "
    assert all(each.locator.startswith(start) for each in entries.values())


@pytest.mark.long
def test_tasks_and_splits_are_those_of_mteb() -> None:
    import mteb

    from leaderboard.results.mteb import SPLITS, TASKS

    for slug, task in TASKS.items():
        assert SPLITS.get(slug, "test") in mteb.get_task(task).metadata.eval_splits
