"""Rolling benchmarks: prepared batches with all their problems, the schedule, and interrupted renewals."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from threading import Barrier, Lock, Thread
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import CommandError, call_command
from django.db import connection, connections
from django.test import Client
from django.utils import timezone

from leaderboard.core.permissions import make_curator
from leaderboard.core.storage.store import Area, path_of
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.topics import renewal
from leaderboard.importing.topics.batches import SourceExhausted
from leaderboard.importing.topics.renewal import RenewalRefused, renew, request_due_renewals, request_renewal
from leaderboard.models import Benchmark, Dataset, Protection, Round, TopicBatch, TopicSource, User, WorkRequest
from tests.curating import save
from tests.factories import make_a_curator, make_dataset, make_topic_source, make_user
from tests.leaderboard.tiny_collection import HEADER, lines_of

pytestmark = pytest.mark.django_db

TOPICS = range(12)
NOW = timezone.now()


def batch_files(batch: int, *, documents: str = "d") -> dict[str, str]:
    queries = [{"_id": f"b{batch}-{n}", "text": f"word {batch} {n}"} for n in TOPICS]
    return {
        "queries.jsonl": lines_of(queries),
        "qrels.tsv": HEADER + "".join(f"b{batch}-{n}\t{documents}{n}\t1\n" for n in TOPICS),
    }


def make_archive(**batches: dict[str, str]) -> SimpleUploadedFile:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, files in batches.items():
            for file, text in files.items():
                archive.writestr(f"batches/{name.replace('_', '-')}/{file}", text)
    return SimpleUploadedFile("batches.zip", content.getvalue())


@pytest.fixture
def first_batch(tmp_path: Path) -> Dataset:
    return import_copy(tmp_path, "first", 1)


def sign_in(*, read_qrels: bool = True) -> Client:
    client, curator = Client(), make_user("Rita")
    make_curator(curator, read_qrels=read_qrels)
    client.force_login(User.objects.get(pk=curator.pk))
    return client


def submit_source(
    dataset: Dataset | None, archive: SimpleUploadedFile | None, *, read_qrels: bool = True, **changes: Any
) -> Any:
    return save(sign_in(read_qrels=read_qrels), "/admin/leaderboard/topicsource/add/", **{
        "name": "Manual", "slug": "manual", "generator": "files", "dataset": str(dataset.pk) if dataset else None,
        "interval_days": "30", "next_at_0": "2030-01-01", "next_at_1": "12:00", "prepared": archive, **changes,
    })  # fmt: skip


def make_source(first_batch: Dataset, *numbers: int) -> TopicSource:
    submit_source(first_batch, make_archive(**{f"b{number}": batch_files(number) for number in numbers}))
    return TopicSource.objects.get(dataset=first_batch)


def import_copy(folder: Path, slug: str, batch: int, documents: str = "word") -> Dataset:
    """Import an open dataset with the topics of a batch, over the corpus of `first_batch` unless its words differ."""
    (folder / slug / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{n}", "title": "", "text": f"{documents} {n}"} for n in TOPICS]
    (folder / slug / "corpus.jsonl").write_text(lines_of(corpus))
    for name, file in (("queries.jsonl", "queries.jsonl"), ("qrels.tsv", "qrels/test.tsv")):
        (folder / slug / file).write_text(batch_files(batch)[name])
    return import_dataset(folder / slug, ImportOptions(slug=slug, name=slug, hidden=False)).dataset


def test_all_problems_of_all_prepared_batches_are_shown_and_nothing_is_stored(first_batch: Dataset) -> None:
    repeated = batch_files(4)["queries.jsonl"].replace("4 3", "1 3").replace("word 4 5", "word 4 6")
    response = submit_source(first_batch, make_archive(
        batch_2={"queries.jsonl": batch_files(2)["queries.jsonl"]},
        batch_3=batch_files(3, documents="x"),
        batch_4=batch_files(4) | {"queries.jsonl": repeated},
        batch_5=batch_files(5) | {"queries.jsonl": "{broken\n"},
    ))  # fmt: skip
    text = response.content.decode()
    for words in ("batch-2: qrels.tsv is missing", "batch-3: test qrels", "batch-4: ", "batch-5: "):
        assert words in text
    assert not TopicSource.objects.exists()


def test_a_curator_who_may_not_read_hidden_judgments_adds_no_batches(first_batch: Dataset) -> None:
    response = submit_source(first_batch, make_archive(batch_2=batch_files(2)), read_qrels=False)
    assert "You may not read hidden judgments, so you cannot add batches." in response.content.decode()
    assert not TopicSource.objects.exists()


def test_prepared_batches_are_started_one_after_the_other_until_there_are_no_more(first_batch: Dataset) -> None:
    response = submit_source(first_batch, make_archive(batch_02=batch_files(2), batch_10=batch_files(3)))
    assert response.status_code == 302, re.findall(r"errorlist.*?</ul>", response.content.decode(), re.S)
    source = TopicSource.objects.get()
    assert list(source.batches.values_list("number", flat=True)) == [1, 2, 3]
    sha256 = source.batches.get(number=3).queries_sha256
    assert path_of(Area.QRELS, sha256).read_text() == batch_files(3)["queries.jsonl"]
    assert renew(source, 2)
    assert not renew(source, 2), "a repeated request changes nothing"
    assert renew(source, 3)
    slugs = Dataset.objects.order_by("pk").values_list("slug", "hidden", "twin_of__slug")
    assert list(slugs) == [
        ("first", False, None),
        ("manual-batch-2", False, None),
        ("manual-batch-3", True, "manual-batch-2"),
    ]
    with pytest.raises(SourceExhausted, match="no further prepared batch"):
        renew(source, 4)
    assert Dataset.objects.get(slug="manual-batch-3").hidden, "nothing is revealed without a new batch"


def test_a_renewal_that_was_interrupted_continues_with_the_same_topics(
    first_batch: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit_source(first_batch, make_archive(b2=batch_files(2), b3=batch_files(3)))
    source = TopicSource.objects.get()
    renew(source, 2)
    for name in ("_set_twin", "request_work"):
        with monkeypatch.context() as patch:
            patch.setattr(renewal, name, lambda *arguments: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                renew(source, 3)
    assert renew(source, 3)
    assert Dataset.objects.count() == 3
    batch = TopicBatch.objects.get(number=3)
    assert batch.dataset is not None
    assert batch.dataset.versions.count() == 1
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.REPEAT, dataset=batch.dataset).count() == 1
    assert TopicBatch.objects.get(number=2).revealed_at is not None


def test_two_batches_stay_hidden_if_the_benchmark_keeps_two(first_batch: Dataset) -> None:
    submit_source(first_batch, make_archive(b2=batch_files(2), b3=batch_files(3), b4=batch_files(4)))
    TopicSource.objects.update(hidden_batches=2)
    source = TopicSource.objects.get()
    hidden = []
    for number in (2, 3, 4):
        renew(source, number)
        hidden.append(Dataset.objects.filter(hidden=True).count())
    assert hidden == [1, 2, 2]


def test_a_due_renewal_is_requested_daily_until_its_batch_has_started(first_batch: Dataset) -> None:
    submit_source(first_batch, make_archive(b2=batch_files(2)))
    TopicSource.objects.update(next_at=NOW, interval_days=7)
    source = TopicSource.objects.get()
    make_topic_source(slug="off", next_at=NOW, enabled=False)
    request_due_renewals(NOW - timedelta(seconds=1))
    assert not WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).exists()
    for _ in range(2):
        request_due_renewals(NOW)
    request = WorkRequest.objects.get(kind=WorkRequest.Kind.RENEW)
    assert request.payload == {"source": source.pk, "number": 2}
    request_due_renewals(NOW + timedelta(days=2))
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).count() == 2
    renew(source, 2)
    source.refresh_from_db()
    assert source.next_at - timezone.now() > timedelta(days=6, hours=23)


def test_the_command_requests_a_renewal_with_a_reason(first_batch: Dataset) -> None:
    curator = make_a_curator()
    make_topic_source(slug="manual", name="Manual", dataset=first_batch)
    out = io.StringIO()
    call_command("renew_topics", "manual", by=curator.email, why="leaked", stdout=out)
    assert "A worker will start batch 2 of Manual." in out.getvalue()
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).count() == 1


def hidden_slugs() -> list[str]:
    return list(Dataset.objects.filter(hidden=True).order_by("pk").values_list("slug", flat=True))


def test_a_late_worker_does_not_reveal_the_batch_that_another_one_started(
    first_batch: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    import_hidden = renewal._import_hidden

    def import_late(batch: TopicBatch, first: Dataset) -> Dataset:
        """Import the batch while another worker completes the whole renewal."""
        monkeypatch.setattr(renewal, "_import_hidden", import_hidden)
        dataset = import_hidden(batch, first)
        assert renew(TopicSource.objects.get(), 3)
        return dataset

    monkeypatch.setattr(renewal, "_import_hidden", import_late)
    assert not renew(source, 3)
    assert hidden_slugs() == ["manual-batch-3"]


@pytest.mark.database
@pytest.mark.django_db(transaction=True)
def test_two_workers_at_once_start_a_batch_once_and_reveal_only_earlier_ones(
    first_batch: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    if connection.vendor == "sqlite":
        pytest.skip("the threads of a test share one SQLite connection")
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    import_hidden, lock, barrier, outcomes = renewal._import_hidden, Lock(), Barrier(2), list[Any]()

    def import_together(batch: TopicBatch, first: Dataset) -> Dataset:
        with lock:
            dataset = import_hidden(batch, first)
        barrier.wait(60)
        return dataset

    def work() -> None:
        try:
            outcomes.append(renew(TopicSource.objects.get(), 3))
        except Exception as error:  # the worker would retry the job
            outcomes.append(error)
        finally:
            connections.close_all()

    monkeypatch.setattr(renewal, "_import_hidden", import_together)
    threads = [Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert sorted(map(str, outcomes)) == ["False", "True"]
    assert hidden_slugs() == ["manual-batch-3"]
    assert TopicBatch.objects.filter(number=3, started_at=None).count() == 0
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.REPEAT).count() == 2


def test_two_requests_by_stale_rows_create_one_dataset(first_batch: Dataset) -> None:
    source = make_topic_source(generator="packages")
    stale_source = TopicSource.objects.get()
    assert [request_renewal(source), request_renewal(stale_source)] == [2, 2]
    assert Dataset.objects.filter(slug="rolling").count() == 1


def test_a_fault_of_one_rolling_benchmark_does_not_stop_the_schedule_of_the_others(
    first_batch: Dataset, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = make_topic_source(name="A broken one", slug="broken", dataset=make_dataset(slug="broken"))
    source = make_topic_source(name="B", dataset=first_batch, next_at=NOW - timedelta(days=2))
    next_number = renewal._next_number
    monkeypatch.setattr(renewal, "_next_number", lambda row: 1 // (row.pk - broken.pk) and next_number(row))
    request_due_renewals(timezone.now())
    assert WorkRequest.objects.get(kind=WorkRequest.Kind.RENEW).payload["source"] == source.pk
    assert "in the schedule of A broken one" in caplog.text
    monkeypatch.undo()
    page = sign_in().get("/admin/").content.decode()
    assert "The renewal of B is overdue." in page
    assert "The renewal of A broken one" not in page, "it is late by seconds only"
    assert "Next renewal: overdue since " in Client().get("/rolling/rolling/").content.decode()


def test_a_first_batch_whose_slug_is_taken_gets_the_next_free_one(first_batch: Dataset) -> None:
    response = submit_source(None, None, generator="packages", slug="first", interval_days="9999999")
    assert "less than or equal to 3650" in response.content.decode()
    assert submit_source(None, None, generator="packages", slug="first").status_code == 302
    source = TopicSource.objects.get()
    make_dataset(slug="first-2")  # after the rolling benchmark was saved
    call_command("renew_topics", "first", by=make_a_curator().email, why="for a test", stdout=io.StringIO())
    source.refresh_from_db()
    assert source.dataset is not None
    assert source.dataset.slug == "first-3"


def in_a_round(dataset: Dataset) -> None:
    times = {"opens_at": NOW - timedelta(1), "closes_at": NOW + timedelta(5), "reveals_at": NOW + timedelta(6)}
    Round.objects.create(slug="spring", name="Spring", dataset=dataset, **times)


def in_a_round_of_a_benchmark(dataset: Dataset) -> None:
    in_a_round(dataset)
    benchmark = Benchmark.objects.create(slug="all", name="All")
    benchmark.members.create(dataset=dataset)
    Round.objects.update(dataset=None, benchmark=benchmark)


def in_a_competition(dataset: Dataset) -> None:
    Dataset.objects.filter(pk=dataset.pk).update(protection=Protection.COMPETITION)


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (in_a_round, "is in the round Spring. Reveal the results of the round first."),
        (in_a_round_of_a_benchmark, "is in the round Spring. Reveal the results of the round first."),
        (in_a_competition, "is in a competition. Change its protection to standard first."),
    ],
)
@pytest.mark.parametrize("when", ["before the request", "before the job", "during the import"])
def test_a_renewal_waits_while_a_batch_to_reveal_is_in_a_round_or_competition(
    first_batch: Dataset, use: Callable[[Dataset], None], reason: str, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    batch = Dataset.objects.get(slug="manual-batch-2")
    TopicSource.objects.update(next_at=NOW - timedelta(minutes=1))
    if when == "during the import":
        import_hidden = renewal._import_hidden
        monkeypatch.setattr(renewal, "_import_hidden", lambda row, first: (use(batch), import_hidden(row, first))[1])
    else:
        use(batch)
    if when == "before the request":
        request_due_renewals(NOW)
        assert not WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).exists()
        with pytest.raises(CommandError, match=reason):
            call_command("renew_topics", "manual", by=make_a_curator().email, why="leaked")
        curator = sign_in()
        fields = {"action": "renew_now", "_selected_action": [source.pk], "confirmed": "yes", "why": "for a test"}
        assert reason in curator.post("/admin/leaderboard/topicsource/", fields, follow=True).content.decode()
        assert f"The renewal of Manual waits: Manual, batch 2 {reason}" in curator.get("/admin/").content.decode()
        assert reason in curator.get(f"/admin/leaderboard/topicsource/{source.pk}/change/").content.decode()
    else:
        with pytest.raises(RenewalRefused, match=reason):
            renew(source, 3)
    assert hidden_slugs()[0] == "manual-batch-2"
    assert Client().get("/datasets/manual-batch-2/files/qrels.test.tsv.gz").status_code == 404
    assert source.batches.get(number=3).started_at is None
    Round.objects.update(revealed_at=NOW)
    Dataset.objects.update(protection=Protection.STANDARD)
    monkeypatch.undo()
    request_due_renewals(NOW)
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).count() == 1
    assert renew(source, 3)
    assert hidden_slugs() == ["manual-batch-3"]


def test_a_batch_whose_slug_is_taken_gets_the_next_free_one(first_batch: Dataset) -> None:
    make_dataset(slug="manual-batch-2")
    source = make_source(first_batch, 2)
    renew(source, 2)
    assert source.batches.get(number=2).dataset == Dataset.objects.get(slug="manual-batch-2-2")


def test_a_reveal_keeps_the_corpus_of_the_batch_and_the_dataset_cannot_be_changed(
    first_batch: Dataset, tmp_path: Path
) -> None:
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    batch = source.batches.get(number=2).dataset
    assert batch is not None
    other = import_copy(tmp_path, "other", 5, "changed")
    source.dataset = other
    with pytest.raises(ValidationError, match="the dataset can no longer change"):
        source.full_clean()
    response = save(sign_in(), f"/admin/leaderboard/topicsource/{source.pk}/change/", dataset=str(other.pk))
    assert "the dataset can no longer change" in response.content.decode()
    TopicSource.objects.update(dataset=other)
    renew(TopicSource.objects.get(), 3)
    batch.refresh_from_db()
    assert (batch.hidden, batch.versions.count()) == (False, 1)


def test_topics_that_are_used_over_the_same_documents_are_refused(first_batch: Dataset, tmp_path: Path) -> None:
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    other = import_copy(tmp_path, "other", 4)
    for number in (1, 2, 3):  # public, hidden, and not started
        archive = make_archive(fresh=batch_files(5), used=batch_files(number))
        text = submit_source(other, archive, slug="other", name="Other").content.decode()
        assert "used: topics with the same text as another topic" in text, number
    assert submit_source(other, make_archive(b5=batch_files(5)), slug="other", name="Other").status_code == 302


def test_folders_with_the_same_name_and_batches_without_relevant_documents_are_refused(first_batch: Dataset) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for folder, number in (("a/batch-01", 2), ("b/batch-01", 3)):
            for file, text in batch_files(number).items():
                archive.writestr(f"{folder}/{file}", text)
    response = submit_source(first_batch, SimpleUploadedFile("b.zip", content.getvalue()))
    assert "folders a/batch-01 and b/batch-01 have the same name" in response.content.decode().lower()
    files = batch_files(2)
    files["qrels.tsv"] = files["qrels.tsv"].replace("\t1\n", "\t0\n")
    text = submit_source(first_batch, make_archive(b2=files, b3=batch_files(3))).content.decode()
    assert "b2: no judgment has a positive grade" in text
    assert not TopicSource.objects.exists()


def test_a_batch_of_another_rolling_benchmark_is_not_a_first_dataset(first_batch: Dataset) -> None:
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    renew(source, 3)
    revealed = Dataset.objects.get(slug="manual-batch-2")
    response = submit_source(revealed, make_archive(b5=batch_files(5)), slug="other", name="Other")
    assert "This dataset is Manual, batch 2." in response.content.decode()


def test_a_batch_that_an_import_opened_is_not_shown_as_hidden_and_not_revealed_again(first_batch: Dataset) -> None:
    source = make_source(first_batch, 2, 3)
    renew(source, 2)
    Dataset.objects.filter(slug="manual-batch-2").update(hidden=False, state=Dataset.State.PUBLISHED)
    page = Client().get("/rolling/manual/").content.decode()
    assert 'class="badge">hidden' not in page
    assert page.count("Topics and judgments") == 1
    renew(source, 3)
    assert hidden_slugs() == ["manual-batch-3"]
    assert Dataset.objects.get(slug="manual-batch-3").twin_of == Dataset.objects.get(slug="manual-batch-2")


def test_the_search_finds_rolling_benchmarks_by_name(first_batch: Dataset) -> None:
    make_topic_source(slug="man-pages", name="Manual pages", dataset=first_batch)
    assert 'href="/rolling/man-pages/"' in Client().get("/search/?q=manual pages").content.decode()
