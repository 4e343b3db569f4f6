"""The client against a site that gunicorn serves: every verb, what is refused, connections that break."""

from __future__ import annotations

import gzip
import json
import os
import re
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from leaderboard.core.audit import acting
from leaderboard.core.storage import deletion_lock
from leaderboard.models import Agreement, Benchmark, BenchmarkMember, Dataset, Entry, User
from runboard import Client, Refused, SiteUnavailable, has_ended, uploading
from runboard.cli import main
from runboard.login import config_path
from submissions.accounts.access import make_token
from submissions.accounts.approval import accept_agreement, apply_agreement
from submissions.jobs.runner import drain_queue
from submissions.models import State, Upload
from submissions.queue.queue import create_requested_jobs
from tests.factories import make_user
from tests.submissions.answer_collections import answer_run, import_capitals
from tests.submissions.model_jobs import make_published

pytestmark = pytest.mark.django_db(transaction=True)

MB = 1024 * 1024
RUN = "".join(f"q{query} Q0 d{number} {number} {9 - number} mine\n" for query in (1, 2) for number in range(1, 8))


@pytest.fixture
def alice() -> User:
    return make_user()


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Isolate tests from the developer's own login."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for name in ("RUNBOARD_URL", "RUNBOARD_TOKEN"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def client(site: str, alice: User) -> Client:
    return Client(site, make_token(alice, "test"))


@pytest.fixture
def logged_in(site: str, alice: User, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNBOARD_URL", site)
    monkeypatch.setenv("RUNBOARD_TOKEN", make_token(alice, "test"))


@pytest.fixture
def small(tmp_path: Path) -> Dataset:
    return make_published(tmp_path / "collection")


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run.txt"
    path.write_text(RUN)
    return path


def work() -> None:
    """Score waiting submissions."""
    create_requested_jobs()
    drain_queue("score", "test-worker")


def test_an_agreement_is_named_with_its_address_until_it_is_accepted(
    client: Client, alice: User, small: Dataset, run: Path, tmp_path: Path
) -> None:
    agreement = Agreement.objects.create(dataset=small, text="For research.")
    with acting(None):
        apply_agreement(agreement)
    for refused in (
        lambda: client.download("small", tmp_path / "data"),
        lambda: client.submit(["small"], [run], system="Mine", architecture="dense"),
    ):
        with pytest.raises(
            Refused, match=r"small.* requires you to accept its agreement first, at .*/datasets/small/agreement/"
        ):
            refused()
    accept_agreement(alice, agreement, 1)
    assert "corpus.jsonl.gz" in {path.name for path in client.download("small", tmp_path / "data")}


def test_from_a_collection_to_a_row_of_a_frame(client: Client, small: Dataset, run: Path, tmp_path: Path) -> None:
    assert [each["slug"] for each in client.datasets()] == ["small"]
    paths = client.download("small", tmp_path / "data", ["queries", "corpus"])
    assert sorted(path.name for path in paths) == ["corpus.jsonl.gz", "queries.jsonl.gz"]
    before = [path.stat().st_mtime_ns for path in paths]
    assert [
        path.stat().st_mtime_ns for path in client.download("small", tmp_path / "data", ["queries", "corpus"])
    ] == before
    assert client.check("small", run)["valid"]
    sent = client.submit(["small"], [run], system="Mine", architecture="dense", training_datasets="none")
    assert not has_ended(sent)
    work()
    *_, ended = client.watch(sent["id"])
    assert ended["state"] == State.DONE
    board = client.board("small", sort="AP")
    assert set(board["system"]) == {"BM25", "Mine"}
    row = board.set_index("slug").loc["mine"]
    assert row["AP"] == pytest.approx(ended["jobs"][0]["scores"]["AP"])
    assert "/at/" in board.attrs["permalink"]
    assert client.export("small", "tex").startswith(b"%")
    assert client.export("small", "latex") == client.export("small", "tex")


@pytest.mark.usefixtures("logged_in")
def test_from_answers_to_their_measures_on_a_board(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_capitals(tmp_path / "collection")
    bad, answers = tmp_path / "bad.jsonl", tmp_path / "answers.jsonl"
    bad.write_bytes(answer_run({"q1": {"confidence": 90}, "q2": {"query_id": "q1"}}))
    answers.write_bytes(answer_run({"q1": {"answer": "Bonn"}, "q2": {"answer": "<i>Roma</i>"}}, search_calls=2))
    capsys.readouterr()
    assert main(["check", "capitals", str(bad)]) == 1
    printed = capsys.readouterr().out
    assert "1 line with the query of an earlier line (line 3)" in printed
    assert "1 line with a figure out of range (line 2)" in printed
    assert main(["check", "capitals", str(answers)]) == 0
    words = ["submit", "capitals", str(answers), "--system", "Mine", "--set", "architecture=other", "--json"]
    assert main([*words, "--set", "training_datasets=none"]) == 0
    work()
    capsys.readouterr()
    assert main(["watch", client.submissions()[0]["id"]]) == 0
    assert "capitals: done" in capsys.readouterr().out
    *_, ended = client.watch(client.submissions()[0]["id"])
    (job,) = ended["jobs"]
    assert (job["scores"]["EM"], job["scores"]["CiteR"]) == (pytest.approx(4 / 6), 0.5)
    board = client.board("capitals").set_index("system")
    assert board.loc["Mine", ["EM", "CiteP", "CiteR"]].tolist() == pytest.approx([4 / 6, 1, 0.5])
    assert pd.isna(board.loc["BM25", "EM"])
    name = f"capitals.mine.{ended['id']}.jsonl.gz"
    assert main(["download-runs", ended["id"], "--to", str(tmp_path / "cli")]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/cli/{name}\n"
    (path,) = client.download_runs(ended["id"], tmp_path / "python")
    assert path == tmp_path / "python" / name
    for copy in (path, tmp_path / "cli" / name):
        assert gzip.decompress(copy.read_bytes()) == answers.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == [name]


def test_runs_are_downloaded_by_whom_the_site_offers_them(client: Client, small: Dataset, run: Path, site: str) -> None:
    identifier = client.submit(["small"], [run], system="Mine", architecture="dense", training_datasets="none")["id"]
    folder, visitor = run.parent / "runs", Client(site, "")
    with pytest.raises(Refused, match="has no run that you may download"):
        client.download_runs(identifier, folder)  # not scored yet
    work()
    with pytest.raises(Refused, match="has no run that you may download"):
        visitor.download_runs(identifier, folder)
    Dataset.objects.update(runs_visibility="public")
    (path,) = visitor.download_runs(identifier, folder)
    assert path.name == f"small.mine.{identifier}.run.gz"
    assert gzip.decompress(path.read_bytes()).decode() == RUN
    path.write_bytes(gzip.compress(RUN.encode(), 9))  # The same run in other bytes is not downloaded again.
    before = path.stat().st_mtime_ns
    assert visitor.download_runs(identifier, folder) == [path]
    assert path.stat().st_mtime_ns == before
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(FileExistsError, match="different content"):
        visitor.download_runs(identifier, folder)
    visitor.download_runs(identifier, folder, replace=True)
    assert gzip.decompress(path.read_bytes()).decode() == RUN


def test_runs_are_downloaded_only_if_no_file_is_in_the_way(client: Client, small: Dataset, run: Path) -> None:
    second = run.with_name("second.run")
    second.write_text(RUN.replace(" d7 7 2 ", " d8 7 2 "))
    fields = {"system": "Mine", "architecture": "dense", "training_datasets": "none", "seed": "0.1,01"}
    identifier, folder = client.submit(["small"], [run, second], **fields)["id"], run.parent / "runs"
    work()
    paths = client.download_runs(identifier, folder)
    assert len({path.name for path in paths}) == 2
    paths[0].unlink()
    paths[1].write_bytes(b"notes")
    with pytest.raises(FileExistsError, match="different content"):
        client.download_runs(identifier, folder)
    assert list(folder.iterdir()) == paths[1:]
    assert client.download_runs(identifier, folder, replace=True) == paths
    assert {gzip.decompress(path.read_bytes()).decode() for path in paths} == {RUN, second.read_text()}


def test_the_columns_of_a_frame_are_keys_and_numbers(client: Client, small: Dataset, run: Path) -> None:
    before = client.board("small")
    client.submit(["small"], [run], system="Mine", architecture="dense", training_datasets="none")
    work()
    work()  # the tests of the whole board
    after = client.board("small")
    assert set(before.columns) == set(after.columns)
    for view in ({"q": "bm25"}, {"q": "nothing"}, {"cpu_only": 1}, {"zero_shot": 1}, {"max_AP": 0.0}):
        assert list(client.board("small", **view).columns) == list(after.columns), view
    assert after.columns.is_unique
    assert "95% interval" not in after
    assert list(after["ranked_among"]) == ["scored", "scored"]
    mine = after.set_index("slug").loc["mine"]
    rows = client.ask("GET", "datasets/small/board/")["rows"]
    (ends,) = (row["intervals"] for row in rows if row["slug"] == "mine")
    assert {"low": mine["low"], "high": mine["high"]} == ends["nDCG@10"]
    assert {"low": mine["delta_low"], "high": mine["delta_high"]} == ends["delta"]
    assert (mine["wins"], mine["ties"], mine["losses"]) == (2, 0, 0)
    assert (mine["rank_low"], mine["rank_high"]) == (1, 2)
    for frame in (before, after):
        numeric = frame[["rank", "low", "high", "delta_low", "delta_high", "wins", "p-baseline", "AP"]]
        assert not numeric.select_dtypes("object").columns.size
    assert pd.isna(before["delta_low"][0])


def test_a_benchmark_is_a_frame_and_an_export_like_a_dataset(
    client: Client, small: Dataset, run: Path, tmp_path: Path
) -> None:
    benchmark = Benchmark.objects.create(slug="both", name="Both")
    for dataset in (small, make_published(tmp_path / "other", "other")):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset)
    before = client.board("both")
    client.submit(["small"], [run], system="Mine", architecture="dense", parameter_count=7)
    work()
    work()  # the tests of the whole board
    after = client.board("both")
    assert list(after.columns) == list(before.columns)
    assert list(after.columns[-4:]) == ["small_low", "small_high", "other_low", "other_high"]
    assert after["small_low"].notna().all()
    for view in ({"q": "bm25"}, {"q": "nothing"}, {"zero_shot": 1}, {"provenance": "reported"}):
        assert list(client.board("both", **view).columns) == list(after.columns), view
    board = after.set_index("slug")
    assert board["small"].dtype == board["other"].dtype == board["mean"].dtype == "float64"
    assert board["coverage"].to_dict() == {"bm25": 2, "mine": 1}
    assert (board["wins"]["mine"], board["losses"]["mine"], board["wins"].dtype) == (1, 0, "Int64")
    assert b"Mine" in client.export("both")


def test_a_submission_is_withdrawn_or_cancelled(
    logged_in: None, client: Client, small: Dataset, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = (
        client.submit(["small"], [run], system=name, architecture="dense")["id"] for name in ("One", "Two")
    )
    assert main(["cancel", second]) == 0
    assert "two: cancelled" in capsys.readouterr().out
    work()
    assert main(["withdraw", first, "--why", "a wrong file"]) == 0
    assert "one: withdrawn" in capsys.readouterr().out
    assert list(client.board("small")["system"]) == ["BM25"]
    assert main(["withdraw", first, "--why", " "]) == 1


def test_a_command_says_that_a_submission_was_already_withdrawn_or_had_ended(
    logged_in: None, client: Client, small: Dataset, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = client.submit(["small"], [run], system="Mine", architecture="dense")["id"]
    work()
    assert main(["cancel", sent, "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["state"] == "done"
    assert printed.err == f"{sent} had already ended (done), so no job was canceled.\n"
    withdraw = ["withdraw", sent, "--why"]
    assert main([*withdraw, "a wrong file"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*withdraw, "another reason"]) == 0
    assert capsys.readouterr().err == f"{sent} was already withdrawn. Its reason is still “a wrong file”.\n"
    assert main(["cancel", sent]) == 0
    assert capsys.readouterr().err == f"{sent} had already ended (withdrawn), so no job was canceled.\n"


def test_a_hint_follows_the_message_that_it_belongs_to(client: Client, small: Dataset, run: Path) -> None:
    fields = {"system": "Mine", "architecture": "dense"}
    first = client.submit(["small"], [run], **fields)
    work()
    run.write_text(RUN.replace("d7 7 2", "d8 7 2"))
    with pytest.raises(Refused) as refusal:
        client.submit(["small"], [run], **fields)
    assert refusal.value.code == "label_needed"
    assert "configuration=…" in str(refusal.value)
    assert f"/submissions/{first['id']}/" in str(refusal.value)


def test_a_withheld_result_says_what_it_means(
    logged_in: None, client: Client, small: Dataset, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sent = client.submit(["small"], [run], system="Mine", architecture="dense")
    work()
    Entry.objects.filter(system__slug="mine").update(visibility=Entry.Visibility.HELD)
    assert main(["status", sent["id"]]) == 0
    assert "small: done No significant change" in " ".join(capsys.readouterr().out.split())


def test_the_notebook_runs_from_top_to_bottom(
    logged_in: None, small: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = json.loads((Path(__file__).parents[2] / "client/examples/first_run.ipynb").read_text())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DATASET", "small")
    variables: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), variables)
        if "client.submit(" in "".join(cell["source"]):
            work()
    assert "TF-IDF of a notebook" in set(variables["board"]["system"])


def test_a_named_image_is_submitted_as_a_model(
    logged_in: None, small: Dataset, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["submit", "small", "--system", "Mine", "--set", "architecture=dense", "--set", "engine=container"]
    assert main([*words, "--set", f"image=ghcr.io/someone/image@sha256:{'a' * 64}"]) == 1
    assert "No worker that runs models was online" in capsys.readouterr().err
    assert main(words) == 2
    assert "--set image=NAME@DIGEST" in capsys.readouterr().err


def test_the_command_says_what_it_does(
    logged_in: None, small: Dataset, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["datasets"]) == 0
    assert "small" in capsys.readouterr().out
    assert main(["download", "small", "--to", str(tmp_path / "here"), "--kind", "queries"]) == 0
    assert capsys.readouterr().out.strip().endswith("queries.jsonl.gz")
    broken = tmp_path / "broken.txt"
    broken.write_text("q1 Q0 d1 1 much mine\n")
    assert main(["check", "small", str(run), str(broken)]) == 1
    told = capsys.readouterr().out
    assert f"{run}: valid" in told
    assert "line 1" in told
    assert main(["submit", "small", str(broken), "--system", "Mine", "--set", "architecture=dense"]) == 1
    assert "line 1" in capsys.readouterr().err
    assert main(["submit", "small", str(run), "--system", "Mine", "--set", "architecture=dense", "--json"]) == 0
    identifier = json.loads(capsys.readouterr().out)["id"]
    assert main(["watch", identifier, "--timeout", "0"]) == 3
    assert "has not ended" in capsys.readouterr().err
    work()
    assert main(["watch", identifier, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "done"
    assert main(["watch", identifier]) == 0
    assert "small: done" in capsys.readouterr().out
    assert main(["status"]) == 0
    assert identifier in capsys.readouterr().out
    assert main(["board", "small", "--view", "sort=AP"]) == 0
    assert re.search(r"^ *\d+ +Mine .* [+-]\d+\.\d%", capsys.readouterr().out, re.MULTILINE)
    assert main(["export", "small", "--format", "csv", "--out", str(tmp_path / "board.csv")]) == 0
    assert "Mine" in (tmp_path / "board.csv").read_text()


def test_a_login_is_kept_for_nobody_else(
    site: str,
    alice: User,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text(make_token(alice, "test") + "\n")
    with token.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert main(["login", site]) == 0
    assert stat.S_IMODE(config_path().stat().st_mode) == 0o600
    assert main(["status"]) == 0
    token.write_text("rb_wrong\n")
    with token.open() as given:
        monkeypatch.setattr("sys.stdin", given)
        assert main(["login", site]) == 1
    assert "Unknown token" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (["--url", "http://127.0.0.1:1", "datasets"], 3, "cannot be reached: Connection refused"),
        (["datasets"], 2, "runboard login"),
        (["--url", "nowhere", "datasets"], 2, "https://"),
    ],
)
def test_a_site_that_is_not_there_is_said_in_a_line(
    words: list[str],
    status: int,
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("urllib3.util.retry.Retry.sleep", lambda *_: None)
    assert main(words) == status
    told = capsys.readouterr().err
    assert said in " ".join(told.split())
    assert "Traceback" not in told


def test_what_is_not_there_is_refused_in_words(client: Client, small: Dataset, run: Path) -> None:
    with pytest.raises(Refused) as refusal:
        client.board("nothing")
    assert refusal.value.status == 404
    with pytest.raises(Refused, match="measure"):
        client.board("small", measure="nonsense")
    with pytest.raises(Refused, match="runboard login"):
        Client(client.url, "rb_wrong").submissions()


# --- large files


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of three pieces."""
    path = tmp_path / "large.txt"
    path.write_bytes(os.urandom(3 * MB - 5))
    monkeypatch.setattr(uploading, "PIECE", MB)
    return path


def killed_after_its_first_piece(words: list[str]) -> int:
    """Run the client in a child process that ends after the first piece, and return its exit code."""
    child = os.fork()
    if child == 0:
        whole = uploading._send_piece

        def further(*arguments: Any) -> None:
            whole(*arguments)
            os._exit(9)

        try:
            uploading._send_piece = further  # type: ignore[assignment]
            main(words)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_an_upload_goes_on_after_its_process_was_killed(
    logged_in: None, large: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["upload", str(large), "--kind", "run"]
    assert killed_after_its_first_piece(words) == 9
    assert Upload.objects.get().offset == MB
    assert main(words) == 0
    found = Upload.objects.get()
    assert capsys.readouterr().out.strip() == found.pk
    assert found.sha256 == uploading.hashlib.sha256(large.read_bytes()).hexdigest()
    assert main(words) == 0  # it is there, and nothing is sent again
    assert capsys.readouterr().out.strip() == found.pk


def test_a_file_that_changed_meanwhile_is_not_taken_though_a_backup_keeps_it(
    logged_in: None, large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = uploading._send_piece

    def changing(*arguments: Any) -> Any:
        found = whole(*arguments)
        large.write_bytes(os.urandom(3 * MB - 5))
        return found

    monkeypatch.setattr(uploading, "_send_piece", changing)
    with deletion_lock.pause_deletions():
        assert main(["upload", str(large), "--kind", "run"]) == 1
    assert "changed during the upload" in capsys.readouterr().err
    assert Upload.objects.exists()  # and counts, until it is deleted


def test_two_uploads_of_one_file_at_once_are_both_whole(client: Client, large: Path) -> None:
    with ThreadPoolExecutor() as threads:
        started = [threads.submit(uploading.upload, client, large, "run", lambda *_: None) for _ in range(2)]
    sha256 = uploading.hashlib.sha256(large.read_bytes()).hexdigest()
    for each in started:
        assert Upload.objects.get(pk=each.result()).sha256 == sha256


def test_a_large_run_goes_in_pieces_by_itself(
    client: Client, small: Dataset, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runboard.client.MAX_BYTES_AT_ONCE", 10)
    sent = client.submit(["small"], [run], system="Mine", architecture="dense")
    work()
    assert client.status(sent["id"])["state"] == State.DONE
    assert not Upload.objects.exists()


def test_a_site_that_goes_away_is_tried_again(
    client: Client, large: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(uploading, "WAITS", (0, 0))
    whole, failures = uploading._send_piece, iter([True, False, True])

    def failing(*arguments: Any) -> Any:
        if next(failures, False):
            raise SiteUnavailable("the connection broke")
        return whole(*arguments)

    monkeypatch.setattr(uploading, "_send_piece", failing)
    identifier = uploading.upload(client, large, "run", lambda *_: None)
    assert Upload.objects.get().pk == identifier
    assert capsys.readouterr().err.count("Trying again") == 2
