"""Rolling benchmarks: prepared batches with all their problems, the schedule, and interrupted renewals."""

from __future__ import annotations

import io
import re
import zipfile
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.core.management import call_command
from django.test import Client
from django.utils import timezone

from leaderboard.core.permissions import make_curator
from leaderboard.core.storage.store import Area, path_of
from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.topics import renewal
from leaderboard.importing.topics.batches import SourceExhausted
from leaderboard.importing.topics.renewal import renew, request_due_renewals
from leaderboard.models import Dataset, TopicBatch, TopicSource, User, WorkRequest
from tests.curating import save
from tests.factories import make_a_curator, make_topic_source, make_user
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
    files = batch_files(1)
    (tmp_path / "first" / "qrels").mkdir(parents=True)
    corpus = [{"_id": f"d{n}", "title": "", "text": f"word {n}"} for n in TOPICS]
    (tmp_path / "first" / "corpus.jsonl").write_text(lines_of(corpus))
    (tmp_path / "first" / "queries.jsonl").write_text(files["queries.jsonl"])
    (tmp_path / "first" / "qrels" / "test.tsv").write_text(files["qrels.tsv"])
    return import_dataset(tmp_path / "first", ImportOptions(slug="manual", name="Manual", hidden=False)).dataset


def submit_source(dataset: Dataset, archive: SimpleUploadedFile, *, read_qrels: bool = True) -> Any:
    client, curator = Client(), make_user("Rita")
    make_curator(curator, read_qrels=read_qrels)
    client.force_login(User.objects.get(pk=curator.pk))
    return save(
        client, "/admin/leaderboard/topicsource/add/", name="Manual", slug="manual", generator="files",
        dataset=str(dataset.pk), interval_days="30", next_at_0="2030-01-01", next_at_1="12:00", prepared=archive,
    )  # fmt: skip


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
        ("manual", False, None),
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


def test_a_due_renewal_is_requested_once_and_scheduled_again(first_batch: Dataset) -> None:
    source = make_topic_source(dataset=first_batch, next_at=NOW, interval_days=7)
    make_topic_source(slug="off", next_at=NOW, enabled=False)
    request_due_renewals(NOW - timedelta(seconds=1))
    assert not WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).exists()
    for _ in range(2):
        request_due_renewals(NOW)
    request = WorkRequest.objects.get(kind=WorkRequest.Kind.RENEW)
    assert request.payload == {"source": source.pk, "number": 2}
    source.refresh_from_db()
    assert source.next_at == NOW + timedelta(days=7)


def test_the_command_requests_a_renewal_with_a_reason(first_batch: Dataset) -> None:
    curator = make_a_curator()
    make_topic_source(slug="manual", name="Manual", dataset=first_batch)
    out = io.StringIO()
    call_command("renew_topics", "manual", by=curator.email, why="leaked", stdout=out)
    assert "A worker will start batch 2 of Manual." in out.getvalue()
    assert WorkRequest.objects.filter(kind=WorkRequest.Kind.RENEW).count() == 1
