"""Results made again: equal bytes and scores, and what is said where something is another."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

from leaderboard.core.work_requests import request_work
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, Run, WorkRequest
from runboard import Client
from runboard.cli import main
from runboard.reproducing import _describe_difference, reproduce, site_and_slug
from submissions import sandbox
from submissions.queue.queue import create_requested_jobs
from tests.submissions.jobs.test_baseline import make_baseline
from tests.submissions.model_jobs import make_published, run_waiting, use_backend

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.usefixtures("package")]


@pytest.fixture
def small(tmp_path: Path) -> Dataset:
    return make_published(tmp_path / "collection")


class Changed(Client):
    """A site whose recipes say something else."""

    changes: dict[str, Any] = {}

    def ask(self, method: str, path: str, **options: Any) -> Any:
        found = super().ask(method, path, **options)
        return [{**each, **self.changes} for each in found] if path.endswith("/recipes/") else found


def test_a_result_is_the_same_byte_for_byte(
    small: Dataset, site: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", f"{site}/systems/bm25/", "--folder", str(tmp_path / "again")]) == 0
    assert "small: the same run, byte for byte" in capsys.readouterr().out


@pytest.mark.long
def test_documents_that_are_excluded_are_left_out_again(site: str, tmp_path: Path) -> None:
    folder = tmp_path / "collection"
    folder.mkdir()
    (folder / "excluded.tsv").write_text("t1\td130\nt1\td129\n")
    make_baseline(folder, hidden=False)
    (found,) = reproduce(Client(site), "bm25", tmp_path / "again")
    assert "the same run, byte for byte" in str(found)
    assert (tmp_path / "again" / "small" / "excluded.tsv.gz").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parameters": {"k1": 3.0, "b": 0.1}}, "the run has different bytes"),
        ({"tag": "another"}, "the run has different bytes"),
        ({"parameters": {"surprise": 1}}, "the engine here has other parameters"),
        ({"files": {"corpus": "0" * 64, "queries": "0" * 64}}, "the site now has a different corpus"),
        ({"scores": {"nDCG@10": 0.123}}, "nDCG@10 is"),
        ({"engine": "another"}, "There is no engine 'another'"),
        ({"tag": "another", "software": "99.1"}, "the site has version 99.1 of the engine, this machine"),
    ],
)
def test_what_is_another_is_said(small: Dataset, site: str, tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    client = Changed(site)
    client.changes = changes
    (found,) = reproduce(client, "bm25", tmp_path / "again")
    assert said in str(found)
    assert "differs" in str(found)


@pytest.mark.parametrize(
    ("engine", "command", "words"),
    [
        (
            "container",
            "",
            [
                "docker load --input ARCHIVE", "skopeo copy oci-archive:ARCHIVE docker-daemon:", "docker run --rm",
                "/tira-data/input:ro", "TIRA_OUTPUT_DIR=/tira-data/output", f"none sha256:{'b' * 64}`",
            ],
        ),
        ("container", "run 'x'", [f"--entrypoint /bin/sh sha256:{'b' * 64}", "-c 'run"]),
        (
            "container-embeddings",
            "",
            ["127.0.0.1:7070:7070", f"PORT=7070 sha256:{'b' * 64}`", "--endpoint http://127.0.0.1:7070`"],
        ),
    ],
)  # fmt: skip
def test_an_image_is_run_by_a_command(
    engine: str, command: str, words: list[str], small: Dataset, site: str, tmp_path: Path
) -> None:
    client = Changed(site)
    image = {"image": f"sha256:{'a' * 64}", "sha256": "b" * 64, "port": 7070}
    client.changes = {"engine": engine, "parameters": {"command": command}, "checkpoint": image}
    (found,) = reproduce(client, "bm25", tmp_path / "again")
    assert all(each in str(found) for each in words), str(found)
    assert (tmp_path / "again/small/image/input/documents.jsonl.gz").is_file() == (engine == "container")
    if engine == "container":
        assert (tmp_path / "again/small/image/output").stat().st_mode & 0o777 == 0o777
    client.changes["checkpoint"]["hub_name"] = "ghcr.io/someone/image"
    (found,) = reproduce(client, "bm25", tmp_path / "again")
    assert f" ghcr.io/someone/image@sha256:{'a' * 64}" in str(found)
    assert "docker load" not in str(found)


def test_a_measure_of_a_later_version_ends_nothing(small: Dataset, site: str, tmp_path: Path) -> None:
    client = Changed(site)
    client.changes = {"scores": {"Foo@3": 1.0}}
    (found,) = reproduce(client, "bm25", tmp_path / "again")
    assert "cannot be reproduced. The site has a measure that this version does not have: 'Foo@3'" in str(found)


def test_each_result_is_compared_with_a_search_of_its_own(small: Dataset, site: str, tmp_path: Path) -> None:
    class Twice(Client):
        def ask(self, method: str, path: str, **options: Any) -> Any:
            found = super().ask(method, path, **options)
            return [*found, {**found[0], "depth": 1}] if path.endswith("/recipes/") else found

    first, second = reproduce(Twice(site), "bm25", tmp_path / "again")
    assert not first.differs
    assert "the run has different bytes" in second.differs


def spoilt(folder: Path) -> Path:
    """The model of this archive's folder with one byte of its last weight changed."""
    (weights,) = folder.rglob("*.safetensors")
    content = bytearray(weights.read_bytes())
    content[-1] ^= 0x40
    weights.write_bytes(content)
    return folder


@pytest.mark.long
def test_a_byte_of_a_model_and_a_prompt_are_noticed(small: Dataset, site: str, tmp_path: Path, settings: Any) -> None:
    use_backend(settings, "auto" if sandbox.backend().available else "none")
    request_work(WorkRequest.Kind.SAMPLE_MODEL, small)
    create_requested_jobs()
    run_waiting()
    system, again = "static-embeddings-svd", tmp_path / "again"
    (found,) = reproduce(Client(site), system, again)
    assert "the same run, byte for byte" in str(found)
    (kind,) = (each["kind"] for each in Client(site).files("small") if each["kind"] == "example_model")
    (archive,) = Client(site).download("small", tmp_path, [kind])
    with zipfile.ZipFile(archive) as packed:
        packed.extractall(tmp_path / "model")
    (found,) = reproduce(Client(site), system, again, spoilt(tmp_path / "model"))
    assert "differs: the checkpoint is another model: another checksum of model/model.safetensors" in str(found)
    assert "tokenizer.json" not in str(found)
    (recipe,) = Client(site).recipes(system)
    prompted = Changed(site)
    prompted.changes = {"parameters": {**recipe["parameters"], "query_prompt": "common "}}
    (found,) = reproduce(prompted, system, again)
    assert "differs: the run has different bytes" in str(found)


def test_why_a_result_cannot_be_made_again_is_said(small: Dataset, site: str, tmp_path: Path) -> None:
    Run.objects.update(origin=Run.Origin.UPLOADED)
    (found,) = reproduce(Client(site), "bm25", tmp_path)
    assert "cannot be reproduced. The run was uploaded" in str(found)
    Run.objects.update(origin=Run.Origin.RETRIEVED)
    (tmp_path / "collection" / "queries.jsonl").write_text(
        '{"_id": "q1", "text": "word"}\n{"_id": "q2", "text": "text"}\n'
    )
    import_dataset(tmp_path / "collection", ImportOptions(slug="small"))
    (found,) = reproduce(Client(site), "bm25", tmp_path)
    assert "has changed since" in str(found)
    Dataset.objects.update(hidden=True)
    (found,) = reproduce(Client(site), "bm25", tmp_path)
    assert "judgments are hidden" in str(found)


def test_a_package_that_is_not_installed_is_named(
    small: Dataset, site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lack(*_: Any) -> None:
        raise ModuleNotFoundError("No module named 'torch'")

    monkeypatch.setattr("runboard.reproducing._retrieve", lack)
    (found,) = reproduce(Client(site), "bm25", tmp_path)
    assert "extra [neural] of the wheel" in str(found)


def test_a_page_or_a_name_names_a_system() -> None:
    assert site_and_slug("https://x.example/systems/bm25/?a=b") == ("https://x.example", "bm25")
    assert site_and_slug("https://x.example/below/systems/bm25") == ("https://x.example/below", "bm25")
    assert site_and_slug("bm25") == (None, "bm25")
    with pytest.raises(ValueError, match="not a system's page"):
        site_and_slug("https://x.example/datasets/small/")


def test_scores_are_describe_difference() -> None:
    assert _describe_difference("AP", 0.25, 0.5) == "AP is 0.2500, there 0.5000"
    assert _describe_difference("AP", 0.2366, 0.23660002) == "AP is 0.23660000, there 0.23660002"
