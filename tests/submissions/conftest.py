"""Small real collections, and people who submit to them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils import timezone

from evaluation.collections.document_ids import DocumentIds
from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import Area, put
from leaderboard.models import Dataset, DatasetVersion, Qrels, User
from leaderboard.systems.records import house_system
from submissions.accounts.tokens import make_token
from submissions.jobs.runner import work_through
from submissions.models import Job, State, Worker
from submissions.sandbox.backends import Backend
from submissions.sandbox.bubblewrap import Bubblewrap
from tests.factories import make_user
from tests.servers.plugin import in_ci
from tests.submissions.fake_hub import hub as hub
from tests.submissions.receiver import receiver as receiver
from tests.submissions.receiver import webhook as webhook

QUERIES = [f"q{number}" for number in range(1, 13)]
#: The last two queries are not judged.
JUDGED = QUERIES[:10]
DOCUMENTS = [f"d{number}" for number in range(1, 1301)]
HEADER = "query-id\tcorpus-id\tscore\n"


@dataclass(frozen=True)
class Answer:
    """An answer of the API."""

    status: int
    body: Any
    headers: Any

    def problem(self, code: str) -> dict[str, Any]:
        """The one problem with this code."""
        found = [problem for problem in self.body["problems"] if problem["code"] == code]
        assert len(found) == 1, self.body["problems"]
        return found[0]


class Api:
    """The API with one person's token."""

    def __init__(self, user: User | None) -> None:
        self.user = user
        self.headers = {"Authorization": f"Bearer {make_token(user, 'test')}"} if user else {}
        self.client = Client()

    def get(self, path: str) -> Answer:
        """GET under /api/v1/."""
        return self._answer(self.client.get(f"/api/v1/{path}", headers=self.headers))

    def post(self, path: str, **fields: Any) -> Answer:
        """POST multipart under /api/v1/."""
        return self._answer(self.client.post(f"/api/v1/{path}", fields, headers=self.headers))

    def check(self, content: str | bytes, dataset: str = "demo", name: str = "run.txt") -> Answer:
        """POST check/."""
        return self.post("check/", dataset=dataset, file=upload(content, name))

    def submit(self, content: str | bytes | None = None, **fields: Any) -> Answer:
        """POST submissions/ with one good run, unless told otherwise."""
        values: dict[str, Any] = {
            "kind": "run",
            "system": "My system",
            "architecture": "dense",
            "dataset": "demo",
            "file": upload(run_text() if content is None else content),
            **fields,
        }
        present = {name: value for name, value in values.items() if value is not None}
        return self.post("submissions/", **present)

    @staticmethod
    def _answer(response: Any) -> Answer:
        return Answer(response.status_code, json.loads(response.content or b"null"), response.headers)


def describe_anew(client: Client, slug: str = "my-system", **fields: Any) -> Any:
    """Save a system's editing page with these fields, as it was opened just now."""
    address = f"/systems/{slug}/edit/"
    opened = client.get(address).context["rendered_from"]
    return client.post(address, {"architecture": "dense", "rendered_from": opened, **fields})


def upload(content: str | bytes, name: str = "run.txt") -> SimpleUploadedFile:
    """A file as a form sends it."""
    return SimpleUploadedFile(name, content.encode() if isinstance(content, str) else content)


def run_text(queries: Iterable[str] = QUERIES, depth: int = 20, tag: str = "test", skip: int = 0) -> str:
    """A good run: falling scores, no ties; `skip` leaves out the first documents, and with them relevant ones."""
    return "".join(
        f"{query} Q0 {document} {rank} {1000 - rank}.5 {tag}\n"
        for query in queries
        for rank, document in enumerate(DOCUMENTS[skip : skip + depth], 1)
    )


def make_collection(folder: Path, slug: str = "demo", **fields: Any) -> Dataset:
    """A published dataset with twelve queries and 1,300 documents; d1 and d3 are relevant to the judged ones."""
    values = {"name": slug.title(), "hidden": False, "measures": ["nDCG@10", "RR@10", "R@100"], **fields}
    dataset = Dataset.objects.create(slug=slug, state=Dataset.State.PUBLISHED, **values)
    queries, ids, qrels = (folder / f"{slug}.{name}" for name in ("queries", "ids", "qrels"))
    queries.write_text("".join(json.dumps({"_id": query, "text": "a question"}) + "\n" for query in QUERIES))
    qrels.write_text(
        HEADER + "".join(f"{query}\td1\t1\n{query}\td3\t2\n{query}\td900\t0\n" for query in JUDGED)
    )
    ids.write_bytes(_document_ids())
    queries_sha256 = put(Area.FILES, queries)
    version = DatasetVersion.objects.create(
        dataset=dataset,
        number=1,
        content_sha256=f"{dataset.pk:064x}",
        queries_sha256=queries_sha256,
        topics_sha256=queries_sha256,
        document_ids_sha256=put(Area.INDEXES, ids),
        statistics={"queries": len(QUERIES), "documents": len(DOCUMENTS)},
    )
    judged = Qrels.objects.create(version=version, sha256=put(Area.QRELS, qrels))
    Dataset.objects.filter(pk=dataset.pk).update(current_version=version, current_qrels=judged)
    dataset.refresh_from_db()
    return dataset


@cache
def _document_ids() -> bytes:
    """The file of document ids, which is the same for every collection."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "ids"
        DocumentIds.build(DOCUMENTS, path)
        return path.read_bytes()


def show_again(client: Client, person: User, method: str = "password") -> None:
    """As if who is signed in had just shown again who they are."""
    session = client.session
    session["account_authentication_methods_user"] = str(person.pk)
    session["account_authentication_methods"] = [
        {"method": method, "at": time.time(), "reauthenticated": True}
    ]
    session.save()


def work() -> None:
    """Do what waits, as a worker does."""
    work_through("score", "test-worker")


@pytest.fixture(autouse=True)
def server_of_long_ago(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs are taken from silent workers, which nobody does in the first seconds of a database server."""
    monkeypatch.setattr("submissions.queue.queue._database_is_back_since", lambda: float("inf"))


@pytest.fixture
def demo(db: None, tmp_path: Path) -> Dataset:
    """An open dataset."""
    return make_collection(tmp_path)


@pytest.fixture
def secret(db: None, tmp_path: Path) -> Dataset:
    """A dataset with hidden judgements."""
    return make_collection(tmp_path, "secret", hidden=True)


@pytest.fixture
def baseline(demo: Dataset, tmp_path: Path) -> None:
    """The open dataset's BM25 row, which misses half of the relevant documents."""
    system = house_system(slug="bm25", name="BM25", architecture="lexical", description="", parameters={})
    path = tmp_path / "baseline.txt"
    path.write_text(run_text(skip=1))
    stored = store_run(path)
    payload = {
        "system_slug": system.slug,
        "run_sha256": stored.sha256,
        "size": stored.size,
        "baseline": True,
    }
    Job.objects.create(
        kind=Job.Kind.SCORE,
        queue=Job.Queue.SCORE,
        dataset=demo,
        state=State.QUEUED,
        validated=True,
        payload=payload,
    )
    work()


@pytest.fixture
def live_worker(db: None) -> None:
    """A worker that has just been heard of."""
    now = timezone.now()
    Worker.objects.create(name="w1", queues=["score", "cpu"], started_at=now, seen_at=now)


SANDBOX = {"works": True, "isolates": True, "backend": "bwrap", "reason": "", "remedy": ""}


def announce(name: str = "w2", queue: str = "cpu", ago: timedelta = timedelta(0), **changes: Any) -> Worker:
    """A worker for models that was heard of so long ago, with a sandbox that works but for the changes."""
    seen = timezone.now() - ago
    told = {**SANDBOX, **changes}
    worker, _ = Worker.objects.update_or_create(
        name=name, defaults={"queues": [queue], "sandbox": told, "started_at": seen, "seen_at": seen}
    )
    return worker


@pytest.fixture
def models_run_here(db: None) -> None:
    """A site that takes models, whether or not this machine has a sandbox: its worker rests, nothing is run here."""
    announce("resting", ago=timedelta(minutes=5))


@pytest.fixture
def alice(db: None) -> User:
    """Somebody who submits."""
    return make_user("Alice")


@pytest.fixture
def curator(db: None) -> User:
    """Somebody who has every right of curation."""
    return make_user("Cora", is_staff=True, is_superuser=True)


@pytest.fixture
def api(alice: User) -> Api:
    """The API as Alice."""
    return Api(alice)


@pytest.fixture
def stranger(db: None) -> Api:
    """The API as somebody else."""
    return Api(make_user("Bob"))


@pytest.fixture
def nobody(db: None) -> Api:
    """The API without a token."""
    return Api(None)


@pytest.fixture
def signed_in(alice: User) -> Client:
    """The site as Alice."""
    client = Client()
    client.force_login(alice)
    return client


@pytest.fixture
def stored_files(settings: Any) -> Callable[[], set[str]]:
    """What the store holds: `runs/<sha256>` and `uploads/<sha256>`."""

    def names() -> set[str]:
        folder = Path(settings.VAR) / "store"
        return {
            f"{area}/{path.name}"
            for area in ("runs", "uploads")
            for path in (folder / area).rglob("*")
            if path.is_file()
        }

    return names


@pytest.fixture(scope="module")
def bubblewrap() -> Backend:
    """The sandbox; without one these tests prove nothing, which CI takes for a failure."""
    backend = Bubblewrap()
    if not backend.available:
        reason = f"NO SANDBOX: {backend.reason}. {backend.remedy}"
        if in_ci():
            pytest.fail(reason)
        pytest.skip(reason)
    return backend


@pytest.fixture
def own_lock(settings: Any, tmp_path: Path) -> None:
    """A lock of timings for this test alone."""
    settings.TIMING_LOCK = str(tmp_path / "timing.lock")
