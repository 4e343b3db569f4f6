"""*Import dataset* in two steps: the source, the facts to confirm, and the page after it."""

from __future__ import annotations

import os
import re
import sys
import time
import zipfile
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from django.conf import settings
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client, override_settings
from django.urls import reverse
from django.utils import timezone

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, WorkRequest
from submissions.jobs.cleanup import remove_unreferenced
from submissions.jobs.runner import drain_queue
from submissions.models import Job, State, Switch
from submissions.queue.lease import Cancelled, finish
from submissions.queue.queue import advance, claim, create_requested_jobs
from tests.factories import make_a_curator, make_user
from tests.importing import IMPORT, choose, confirm, send
from tests.leaderboard.importing.test_fetching import Catalogued, Doc
from tests.leaderboard.tiny_collection import HEADER, good_files, lines_of, write_folder, write_zip
from tests.pages import one_line
from tests.servers.hub import COMMIT, FakeHub, answering

pytestmark = pytest.mark.django_db


@pytest.fixture
def curator(client: Client) -> Client:
    client.force_login(make_a_curator())
    return client


def staged_files() -> list[Path]:
    return [path for path in (Path(settings.VAR) / "private" / "staged").rglob("*") if path.is_file()]


def downloaded_files() -> list[Path]:
    return [path for path in (Path(settings.VAR) / "store" / "downloads").rglob("*") if path.is_file()]


@pytest.fixture(autouse=True)
def _nothing_staged() -> None:
    for path in [*staged_files(), *downloaded_files()]:
        path.unlink()


def text(answer: Any) -> str:
    return one_line(answer.content.decode())


def test_the_facts_of_a_zip_are_shown_and_confirmed_without_further_input(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"), name="Tiny_Tests.zip")
    shown = text(page)
    assert "test: 4 judgments of 2 queries" in shown
    assert "train: 1 judgment of 1 query" in shown
    form = page.context["form"]
    assert {name: form[name].value() for name in ("name", "slug", "split", "runs_only", "collecting")} == {
        "name": "Tiny_Tests", "slug": "tiny-tests", "split": "test", "runs_only": False, "collecting": False,
    }  # fmt: skip
    assert not Dataset.objects.exists()
    answer = confirm(curator, page)
    dataset = Dataset.objects.get()
    assert (dataset.slug, dataset.name, dataset.hidden) == ("tiny-tests", "Tiny_Tests", True)
    assert dataset.current_version is not None
    assert dataset.current_version.statistics["documents"] == 5
    assert answer.redirect_chain[-1][0].startswith(reverse("admin:leaderboard_dataset_imported", args=[dataset.pk]))
    assert staged_files() == [], "the zip is in private storage only until it is imported"


def test_a_curator_states_who_judged(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"), name="tiny.zip")
    confirm(curator, page, judged_by="NIST assessors")
    qrels = Dataset.objects.get().current_qrels
    assert qrels is not None
    assert qrels.judged_by == {"stated": "NIST assessors"}


@pytest.mark.parametrize(
    ("missing", "field", "shown"),
    [
        ("corpus.jsonl", "runs_only", "none: only uploaded runs are scored"),
        ("qrels", "collecting", "none: the dataset collects runs"),
    ],
)
def test_a_missing_part_is_a_fact_to_confirm(
    tmp_path: Path, curator: Client, missing: str, field: str, shown: str
) -> None:
    changes = dict.fromkeys(["corpus.jsonl"] if missing == "corpus.jsonl" else ["qrels/test.tsv", "qrels/train.tsv"])
    page = choose(curator, write_zip(tmp_path / "a.zip", changes))
    assert shown in text(page)
    assert page.context["form"][field].value() is True
    confirm(curator, page)
    dataset = Dataset.objects.get()
    assert dataset.runs_only if field == "runs_only" else dataset.state == Dataset.State.COLLECTING


def test_judgements_of_another_split_are_proposed(tmp_path: Path, curator: Client) -> None:
    changes = {"qrels/test.tsv": None, "qrels/dev.tsv": HEADER + "q1\td1\t1\n"}
    page = choose(curator, write_zip(tmp_path / "a.zip", changes))
    assert page.context["form"]["split"].value() == "dev"
    confirm(curator, page)
    qrels = Dataset.objects.get().current_qrels
    assert qrels is not None
    assert qrels.split == "dev"


def test_a_language_is_proposed(tmp_path: Path, curator: Client) -> None:
    sentence = "Der Einfluss von Statinen auf das Überleben wurde in einer Studie mit vielen Patienten untersucht."
    corpus = lines_of([{"_id": f"d{number}", "title": "", "text": sentence} for number in range(1, 6)])
    page = choose(curator, write_zip(tmp_path / "a.zip", {"corpus.jsonl": corpus}))
    assert page.context["form"]["language"].value() == "de"
    confirm(curator, page)
    assert Dataset.objects.get().language == "de"


def test_all_problems_of_a_zip_are_listed_at_the_first_step_and_nothing_is_kept(
    tmp_path: Path, curator: Client, settings: Any
) -> None:
    changes = {
        "corpus.jsonl": good_files()["corpus.jsonl"] + "nonsense\n",
        "queries.jsonl": good_files()["queries.jsonl"] + '{"_id": "q1", "text": "again"}\n',
        "qrels/test.tsv": HEADER + "q1\td1\tmuch\n",
    }
    answer = choose(curator, write_zip(tmp_path / "a.zip", changes))
    assert answer.status_code == 400
    assert "Nothing was imported: 3 problems." in text(answer)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        assert name in text(answer)
    assert "staged" not in curator.session.get("imports", {})
    assert staged_files() == []
    settings.HUB_DOWNLOADS = True
    for data in ({"source": ""}, {"source": "hf:a/b", "archive": SimpleUploadedFile("a.zip", b"x")}):
        answer = curator.post(IMPORT, data)
        assert answer.status_code == 400
        assert "Choose a zip or enter the name of a source" in text(answer)


def test_an_archive_without_a_collection_is_one_problem_that_lists_its_files(tmp_path: Path, curator: Client) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        archive.writestr("config.json", "{}")
        archive.writestr("model.safetensors", "")
    answer = choose(curator, tmp_path / "model.zip", name="model.zip")
    assert "Nothing was imported: 1 problem." in text(answer)
    assert "there is no file of a collection: config.json, model.safetensors" in text(answer)
    assert staged_files() == []


def test_wrong_options_are_reported_together_and_name_the_fields(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"))
    refused = text(confirm(curator, page, split="te st", language="xx", primary="nDCG@nix"))
    assert "“te st” is not a valid split name" in refused
    assert "“xx” is neither the code nor the English name of a language" in refused
    assert "Correct “Language”." in refused
    assert "nDCG@nix" in refused
    assert not Dataset.objects.exists()


def test_problems_of_the_second_step_keep_the_file_and_all_input(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"))
    run = SimpleUploadedFile("our-run.txt", b"q1 Q0 d1 1 2.0 ours\nq2 Q0 d3 1 1.0 ours\n")
    refused = confirm(curator, page, name="Kept", primary="nDCG@nix", baseline=run)
    assert refused.status_code == 400
    assert "nDCG@nix" in text(refused)
    assert refused.context["form"]["name"].value() == "Kept"
    assert "Selected: our-run.txt" in text(refused)
    assert confirm(curator, refused, language="nix").status_code == 400
    assert not Dataset.objects.exists()
    confirm(curator, refused, primary=None)
    dataset = Dataset.objects.get()
    assert dataset.name == "Kept"
    request = WorkRequest.objects.get(kind=WorkRequest.Kind.SCORE, dataset=dataset)
    assert request.payload["system_slug"] == "ours-tiny"


def test_a_form_that_is_sent_twice_imports_once(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"))
    first, second = confirm(curator, page), confirm(curator, page)
    assert first.redirect_chain[-1] == second.redirect_chain[-1]
    assert "Imported tiny version 1" in text(second)
    dataset = Dataset.objects.get()
    assert (dataset.versions.count(), WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE).count()) == (1, 1)


def test_an_abandoned_file_is_swept_after_a_day_and_then_asked_for_again(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"))
    (file,) = staged_files()
    remove_unreferenced()
    assert file.exists(), "another step may follow"
    os.utime(file, (0, time.time() - 25 * 3600))
    remove_unreferenced()
    assert not file.exists()
    answer = confirm(curator, page)
    assert answer.redirect_chain[-1][0] == IMPORT
    assert "no longer stored, and was not imported. Choose it again." in text(answer)
    assert not Dataset.objects.exists()


def test_a_file_belongs_to_the_session_that_chose_it(tmp_path: Path, curator: Client) -> None:
    page = choose(curator, write_zip(tmp_path / "a.zip"))
    other = Client()
    other.force_login(make_user("Root", is_staff=True, is_superuser=True))
    assert "no longer stored" in text(confirm(other, page))
    assert not Dataset.objects.exists()


def test_all_steps_take_the_right_to_add_datasets(tmp_path: Path, client: Client) -> None:
    dataset = import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny")).dataset
    client.force_login(make_user("Sam", is_staff=True))
    imported = reverse("admin:leaderboard_dataset_imported", args=[dataset.pk])
    assert [client.get(url).status_code for url in (IMPORT, f"{IMPORT}?staged=x", imported)] == [403, 403, 403]
    assert choose(client, write_zip(tmp_path / "a.zip")).status_code == 403
    assert staged_files() == []
    assert "Import dataset" not in text(client.get("/admin/"))


def test_an_existing_dataset_is_updated_only_from_its_own_page(tmp_path: Path, curator: Client) -> None:
    dataset = import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny", name="Named", language="de")).dataset
    page = choose(curator, write_zip(tmp_path / "a.zip"))
    assert page.context["form"]["slug"].value() == "tiny-2"
    assert "tiny exists. Choose another slug" in text(confirm(curator, page, slug="tiny"))
    changed = {"corpus.jsonl": good_files()["corpus.jsonl"] + '{"_id": "d6", "text": "six"}\n'}
    assert "Imported Named version 2" in text(send(curator, write_zip(tmp_path / "b.zip", changed)))
    dataset.refresh_from_db()
    assert (dataset.name, dataset.language) == ("Named", "de")


def test_the_page_after_the_import_follows_the_baseline(tmp_path: Path, curator: Client) -> None:
    answer = send(curator, write_zip(tmp_path / "a.zip"))
    address = answer.request["PATH_INFO"] + "?" + answer.request["QUERY_STRING"]
    dataset = Dataset.objects.get()
    assert "The baseline is requested." in text(answer)
    assert '<meta http-equiv="refresh" content="4">' in text(answer)
    create_requested_jobs()
    waiting = text(curator.get(address))
    assert "queued" in waiting
    assert "Imported tiny version 1" in waiting
    Job.objects.filter(kind=Job.Kind.BASELINE).update(state="failed", error_code="crashed", fault="0123abcd")
    failed = text(curator.get(address))
    assert "crashed 0123abcd" in failed
    assert "Rebuild BM25 baseline" in failed
    assert "http-equiv" not in failed
    for link in (dataset.get_absolute_url(), reverse("admin:leaderboard_dataset_change", args=[dataset.pk])):
        assert f'href="{link}"' in failed


def test_the_index_begins_with_the_tasks_of_curators(curator: Client) -> None:
    page = text(curator.get("/admin/"))
    assert page.index("To review") < page.index("Import dataset") < page.index("Benchmarks</a>")
    assert page.index("Enter reported results") < page.index("Entries</a>")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    """A mirror with a collection whose only judgments are those of a split “dev”."""
    good = good_files()
    files = {name: good[name].encode() for name in ("corpus.jsonl", "queries.jsonl")}
    files["qrels/dev.tsv"] = good["qrels/test.tsv"].encode()
    with answering(FakeHub("datasets", "mteb/tiny", files), monkeypatch) as fake:
        fake.card = {"license": "cc-by-4.0", "language": ["sw"]}
        yield fake


@pytest.fixture
def downloads(settings: Any) -> None:
    settings.HUB_DOWNLOADS = True


def answer_after_work(curator: Client, page: Any) -> Any:
    """The same page once a retriever, which has no access to private storage, has done its work."""
    with override_settings(PRIVATE_STORAGE=False):
        drain_queue("cpu", "worker")
    return curator.get(page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"])


def press(curator: Client, page: Any, action: str) -> Any:
    address = page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"]
    return curator.post(address, {"action": action}, follow=True)


def test_a_collection_of_the_hub_is_listed_then_downloaded_where_downloads_are_on(
    hub: FakeHub, curator: Client
) -> None:
    refused = curator.post(IMPORT, {"source": "hf:mteb/tiny"})
    assert "Downloads are off on this site." in text(refused)
    assert "disabled" in str(refused.context["form"]["source"])
    assert not hub.asked
    Switch.objects.update_or_create(name=Switch.Name.HUB_DOWNLOADS, defaults={"is_on": True})
    page = curator.post(IMPORT, {"source": "hf:mteb/tiny"}, follow=True)
    assert "queued" in text(page)
    assert '<meta http-equiv="refresh" content="4">' in text(page)
    assert not hub.asked, "processes with judgments need no internet access"
    page = answer_after_work(curator, page)
    size = sum(map(len, hub.files.values()))
    for fact in ("mteb/tiny", COMMIT, "cc-by-4.0", f"{size:,} bytes in 3 files"):
        assert fact in text(page)
    assert len(hub.asked) == 1, "nothing is downloaded before the curator has seen its size"
    assert "http-equiv" not in text(page)
    press(curator, page, "start")
    assert Job.objects.latest("pk").payload["source"] == f"hf:mteb/tiny@{COMMIT}"
    page = answer_after_work(curator, page)
    form = page.context["form"]
    assert {name: form[name].value() for name in ("name", "split", "licence", "language")} == {
        "name": "tiny", "split": "dev", "licence": "cc-by-4.0", "language": "sw",
    }  # fmt: skip
    assert COMMIT in text(page)
    confirm(curator, page)
    dataset = Dataset.objects.get()
    assert dataset.current_version is not None
    assert dataset.current_version.statistics["source"] == f"hf:mteb/tiny@{COMMIT}"
    assert dataset.current_version.label == f"mteb/tiny@{COMMIT[:12]}"
    assert downloaded_files() == []


def test_a_failed_download_names_the_reason_and_can_be_repeated(hub: FakeHub, curator: Client, downloads: None) -> None:
    page = answer_after_work(curator, curator.post(IMPORT, {"source": "hf:mteb/tiny"}, follow=True))
    hub.sent["corpus.jsonl"] = hub.files["corpus.jsonl"][:50]
    page = answer_after_work(curator, press(curator, page, "start"))
    assert "the download of corpus.jsonl is incomplete or damaged" in text(page)
    assert "Try again" in text(page)
    assert COMMIT in text(page)
    hub.sent.clear()
    page = answer_after_work(curator, press(curator, page, "start"))
    assert page.context["form"]["name"].value() == "tiny"


def test_a_download_shows_its_progress_and_can_be_canceled(hub: FakeHub, curator: Client, downloads: None) -> None:
    page = answer_after_work(curator, curator.post(IMPORT, {"source": "hf:mteb/tiny"}, follow=True))
    page = press(curator, page, "start")
    job = claim(["cpu"], "worker:1")
    assert job is not None
    Job.objects.update(state=State.RETRIEVING, stage="fetching", progress=0.42, progress_note="fetching corpus.jsonl")
    page = curator.get(page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"])
    assert re.search(r'<progress value="0.42"></progress> 42% fetching corpus.jsonl', text(page))
    page = press(curator, page, "cancel")
    job.refresh_from_db()
    assert job.cancel_requested
    with pytest.raises(Cancelled):
        finish(job, "")
    advance(job.pk, State.CANCELLED, fence=job.fence)
    page = curator.get(page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"])
    assert "cancelled" in text(page)
    assert "Try again" in text(page)


def test_an_existing_dataset_is_updated_from_the_hub(
    hub: FakeHub, tmp_path: Path, curator: Client, downloads: None
) -> None:
    dataset = import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny", split="test")).dataset
    hub.files["qrels/test.tsv"] = hub.files.pop("qrels/dev.tsv")
    hub.files["corpus.jsonl"] += b'{"_id": "d6", "text": "six"}\n'
    page = curator.post(f"{IMPORT}?dataset=tiny", {"source": "hf:mteb/tiny@v1"}, follow=True)
    page = answer_after_work(curator, page)
    page = answer_after_work(curator, press(curator, page, "start"))
    confirm(curator, page)
    dataset.refresh_from_db()
    assert dataset.current_version is not None
    assert (dataset.versions.count(), dataset.current_version.statistics["documents"]) == (2, 6)


def test_old_downloads_are_removed_with_their_jobs(hub: FakeHub, curator: Client, downloads: None) -> None:
    page = answer_after_work(curator, curator.post(IMPORT, {"source": "hf:mteb/tiny"}, follow=True))
    page = press(curator, page, "start")
    with override_settings(PRIVATE_STORAGE=False):
        drain_queue("cpu", "worker")
    (file,) = downloaded_files()
    remove_unreferenced()
    assert file.exists()
    assert Job.objects.count() == 2
    os.utime(file, (0, time.time() - 25 * 3600))
    Job.objects.update(finished_at=timezone.now() - timedelta(hours=25))
    remove_unreferenced()
    assert not file.exists()
    assert not Job.objects.exists()
    page = curator.get(page.request["PATH_INFO"] + "?" + page.request["QUERY_STRING"], follow=True)
    assert "no longer stored, and was not imported. Choose it again." in text(page)


def test_a_source_that_cannot_be_read_is_one_problem(hub: FakeHub, curator: Client, downloads: None) -> None:
    answer = curator.post(IMPORT, {"source": "mteb/tiny"})
    assert answer.status_code == 400
    assert "mteb/tiny is not a valid source" in text(answer)
    assert 'value="mteb/tiny"' in text(answer)
    assert not Job.objects.exists()
    page = answer_after_work(curator, curator.post(IMPORT, {"source": "hf:mteb/nix"}, follow=True))
    assert "Nothing was downloaded: 1 problem." in text(page)
    assert "the hub has no public repository mteb/nix" in text(page)


def test_a_dataset_of_ir_datasets_is_imported_or_its_package_asked_for(
    curator: Client, downloads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ir_datasets", None)
    page = answer_after_work(curator, curator.post(IMPORT, {"source": "ir_datasets:beir/tiny/test"}, follow=True))
    assert "make install-collections" in text(page)
    known = {"beir/tiny/test": Catalogued([Doc("d1", "about wings", "Wings"), Doc("d2", "heat", "")])}
    package = SimpleNamespace(load=known.__getitem__, __version__="0.6.3")
    monkeypatch.setitem(sys.modules, "ir_datasets", package)  # type: ignore[arg-type]
    page = answer_after_work(curator, press(curator, page, "start"))
    assert page.context["form"]["slug"].value() == "tiny"
    confirm(curator, page)
    dataset = Dataset.objects.get()
    assert (dataset.slug, dataset.ir_datasets_id) == ("tiny", "beir/tiny/test")
