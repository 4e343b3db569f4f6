"""What a dataset offers for download, to whom, and what never leaves."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest
from django.core.management import call_command
from django.test import Client

from leaderboard.datasets.files import judgements_name, offer_file, offered_files, store_file
from leaderboard.importing.collections.importer import ImportResult, import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.models import Dataset, DatasetFile, DatasetVersion, Qrels
from tests.factories import make_a_curator, make_user
from tests.leaderboard.tiny_collection import HEADER, good_files, write_folder
from tests.pages import one_line

pytestmark = pytest.mark.django_db

#: A judgement of one test alone, since stored files outlive tests.
SECRET = "q2\td3\t7\n"


def published(folder: Path, **options: Any) -> ImportResult:
    """The tiny collection, imported and published."""
    imported = import_dataset(write_folder(folder), ImportOptions(slug="tiny", **options))
    Dataset.objects.update(state=Dataset.State.PUBLISHED)
    return imported


def body(response: Any) -> bytes:
    """The whole of a streamed answer."""
    return b"".join(response.streaming_content) if response.streaming else response.content


def test_the_api_lists_files_with_sizes_and_checksums_that_are_true(tmp_path: Path, client: Client) -> None:
    published(tmp_path)
    files = client.get("/api/v1/datasets/tiny/files/").json()
    assert [(file["kind"], file["name"]) for file in files] == [
        ("queries", "queries.jsonl.gz"),
        ("all_queries", "queries.all.jsonl.gz"),
        ("corpus", "corpus.jsonl.gz"),
        ("document_ids", "document-ids.txt.gz"),
        ("qrels", "qrels.train.tsv.gz"),
    ]
    for file in files:
        content = body(client.get(file["url"]))
        assert len(content) == file["size"]
        assert hashlib.sha256(content).hexdigest() == file["sha256"]
    assert gzip.decompress(body(client.get(files[1]["url"]))).decode() == good_files()["queries.jsonl"]
    assert gzip.decompress(body(client.get(files[3]["url"]))) == b"d1\nd2\nd3\nd4\nd5\n"


def test_downloads_are_attachments_in_a_sandbox(tmp_path: Path, client: Client) -> None:
    published(tmp_path)
    answer = client.get("/datasets/tiny/files/corpus.jsonl.gz")
    assert answer.headers["Content-Disposition"] == 'attachment; filename="corpus.jsonl.gz"'
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["Content-Security-Policy"].startswith("sandbox")
    again = client.get("/datasets/tiny/files/corpus.jsonl.gz", headers={"if-none-match": answer.headers["ETag"]})
    assert again.status_code == 304
    assert client.post("/datasets/tiny/files/corpus.jsonl.gz").status_code == 405


def test_hidden_test_judgements_are_never_offered(tmp_path: Path, client: Client) -> None:
    imported = published(tmp_path)
    names = [file["name"] for file in client.get("/api/v1/datasets/tiny/files/").json()]
    assert judgements_name("test") not in names
    curator = make_user("Carol", is_staff=True, is_superuser=True)
    client.force_login(curator)
    for name in [
        judgements_name("test"),
        "qrels/test.tsv",
        "test.tsv",
        *Qrels.objects.values_list("sha256", flat=True),
    ]:
        assert client.get(f"/datasets/tiny/files/{name}").status_code == 404
    # Even a row that should not be there is not served.
    kept = store_file(tmp_path / "qrels" / "test.tsv")
    offer_file(imported.version, DatasetFile.Kind.QRELS, kept, judgements_name("test"))
    assert client.get(f"/datasets/tiny/files/{judgements_name('test')}").status_code == 404


def test_no_stored_public_file_holds_hidden_judgements(tmp_path: Path, settings: Any) -> None:
    write_folder(tmp_path, {"qrels/test.tsv": good_files()["qrels/test.tsv"].replace("q2\td3\t1\n", SECRET)})
    import_dataset(tmp_path, ImportOptions(slug="tiny"))
    public = [path for path in (Path(settings.VAR) / "store").rglob("*") if path.is_file()]
    assert public
    for path in public:
        content = path.read_bytes()
        assert SECRET.encode() not in (gzip.decompress(content) if content.startswith(b"\x1f\x8b") else content)
    private = (Path(settings.VAR) / "private").rglob("*")
    assert any(SECRET in path.read_text() for path in private if path.is_file())


def test_open_judgements_are_offered(tmp_path: Path, client: Client) -> None:
    published(tmp_path, hidden=False)
    answer = client.get(f"/datasets/tiny/files/{judgements_name('test')}")
    assert gzip.decompress(body(answer)).decode() == good_files()["qrels/test.tsv"]


@pytest.mark.parametrize(
    ("visibility", "visitors"),
    [
        ("public", {"visitor", "participant", "curator"}),
        ("participants", {"participant", "curator"}),
        ("curators", {"curator"}),
    ],
)
def test_documents_and_queries_follow_their_own_settings(tmp_path: Path, visibility: str, visitors: set[str]) -> None:
    published(tmp_path, documents_visibility=visibility)
    people = {"visitor": None, "participant": make_user("Bob"), "curator": make_a_curator("Carol")}
    for name, person in people.items():
        client = Client()
        if person:
            client.force_login(person)
        offered = {file["kind"] for file in client.get("/api/v1/datasets/tiny/files/").json()}
        status = client.get("/datasets/tiny/files/corpus.jsonl.gz").status_code
        assert (("corpus" in offered), status) == ((True, 200) if name in visitors else (False, 404))
        assert {"queries", "document_ids", "qrels"} <= offered


def test_restricted_downloads_are_not_kept_by_shared_caches(tmp_path: Path, client: Client) -> None:
    published(tmp_path, queries_visibility="participants")
    client.force_login(make_user("Bob"))
    assert "private" in client.get("/datasets/tiny/files/queries.jsonl.gz").headers["Cache-Control"]


def test_a_dataset_in_preparation_offers_nothing_to_visitors(tmp_path: Path, client: Client) -> None:
    import_dataset(write_folder(tmp_path), ImportOptions(slug="tiny"))
    assert client.get("/datasets/tiny/files/queries.jsonl.gz").status_code == 404
    assert client.get("/api/v1/datasets/tiny/files/").status_code == 404


def test_only_the_current_version_is_offered(tmp_path: Path, client: Client) -> None:
    published(tmp_path / "1")
    changed = {"queries.jsonl": good_files()["queries.jsonl"].replace("number", "nr")}
    imported = import_dataset(write_folder(tmp_path / "2", changed), ImportOptions(slug="tiny"))
    content = gzip.decompress(body(client.get("/datasets/tiny/files/queries.jsonl.gz"))).decode()
    assert content == changed["queries.jsonl"].split('{"_id": "q3"')[0]
    assert DatasetVersion.objects.count() == 2
    assert {file.version for file in offered_files(imported.dataset, make_user())} == {imported.version}


def test_an_example_run_is_offered_once_it_is_there(tmp_path: Path, client: Client) -> None:
    imported = published(tmp_path)
    run = tmp_path / "run.txt"
    run.write_text("q1 Q0 d1 1 2.5 bm25\n")
    offer_file(imported.version, DatasetFile.Kind.EXAMPLE_RUN, store_file(run), "tiny.bm25.run.txt")
    offer_file(imported.version, DatasetFile.Kind.EXAMPLE_RUN, store_file(run), "tiny.bm25.run.txt")
    listed = [file for file in client.get("/api/v1/datasets/tiny/files/").json() if file["kind"] == "example_run"]
    assert [file["size"] for file in listed] == [20]
    assert body(client.get(listed[0]["url"])) == run.read_bytes()


def test_beside_hidden_judgements_only_splits_for_training_are_offered(
    tmp_path: Path, client: Client, capsys: Any
) -> None:
    changes = {"qrels/heldout.tsv": HEADER + "q2\td1\t1\n", "qrels/dev2.tsv": HEADER + "q1\td3\t1\n"}
    write_folder(tmp_path, changes)
    call_command("import_dataset", str(tmp_path), slug="tiny")
    told = capsys.readouterr().out
    assert "Public files: queries.jsonl.gz, queries.all.jsonl.gz, corpus.jsonl.gz, " in told
    assert ", qrels.dev2.tsv.gz, qrels.train.tsv.gz. Withheld: the judgments of heldout. " in told
    Dataset.objects.update(state=Dataset.State.PUBLISHED)
    assert client.get("/datasets/tiny/files/qrels.dev2.tsv.gz").status_code == 200
    assert client.get("/datasets/tiny/files/qrels.heldout.tsv.gz").status_code == 404
    # What an earlier import offered is held against the judgements anew, or withdrawn.
    version = DatasetVersion.objects.get()
    offer_file(
        version,
        DatasetFile.Kind.QRELS,
        store_file(tmp_path / "qrels" / "heldout.tsv"),
        "qrels.heldout.tsv.gz",
    )
    assert client.get("/datasets/tiny/files/qrels.heldout.tsv.gz").status_code == 404
    (tmp_path / "qrels" / "dev2.tsv").unlink()
    assert "files" in import_dataset(tmp_path, ImportOptions(slug="tiny")).changes
    assert list(version.files.filter(kind="qrels").values_list("name", flat=True)) == ["qrels.train.tsv.gz"]


def test_statistics_do_not_give_the_number_of_hidden_judgements(tmp_path: Path, client: Client) -> None:
    qrels = good_files()["qrels/test.tsv"] + "q3\td1\t1\n"
    write_folder(tmp_path, {"qrels/test.tsv": qrels, "qrels/train.tsv": None})
    for hidden, relevant in ((True, 1.3), (False, 4 / 3)):
        import_dataset(tmp_path, ImportOptions(slug="tiny", hidden=hidden))
        Dataset.objects.update(state=Dataset.State.PUBLISHED)
        of_one = client.get("/api/v1/datasets/tiny/").json()["statistics"]
        (of_all,) = (each["statistics"] for each in client.get("/api/v1/datasets/").json()["datasets"])
        assert of_one == of_all
        assert (of_one["relevant_per_query"], of_one["queries"]) == (relevant, 3)
        assert of_one.get("judgements") == (None if hidden else 5)
        page = one_line(client.get("/datasets/tiny/").content.decode())
        assert 'Relevant documents per query</dt><dd class="number">1.3</dd>' in page
