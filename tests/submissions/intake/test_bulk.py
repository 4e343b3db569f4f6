"""Many runs imported at once: by whom each is, all problems in one answer, and one notice at the end."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from django.core import mail
from django.core.management import CommandError, call_command
from django.test import Client

from leaderboard.importing.collections.importer import import_dataset
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.judgements.disclosure import COMPARED
from leaderboard.models import AuditRecord, Dataset, Entry, System, User
from leaderboard.systems.anonymity import make_anonymous
from submissions.accounts.teams import personal_team
from submissions.models import Notice, QuotaUse, Submission
from submissions.notifications.events import notify_finished
from submissions.notifications.sending import send_notifications
from tests.factories import make_a_curator, make_user
from tests.submissions.clients import Api
from tests.submissions.collections import run_text
from tests.submissions.workers import work

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

ROWS = "run,participant,name,architecture\n"


@pytest.fixture
def curator(db: None) -> User:
    """Who may change datasets, with a team."""
    person = User.objects.create_superuser("curator@example.org", "a long passphrase")
    personal_team(person)
    return person


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three runs: two tagged, of which one is compressed, and one whose tag two groups chose."""
    folder = tmp_path / "runs"
    folder.mkdir()
    (folder / "one.txt").write_text(run_text(tag="glasgow.bm25"))
    (folder / "two.txt.gz").write_bytes(gzip.compress(run_text(tag="bm25", skip=1).encode()))
    (folder / "three.run").write_text(run_text(tag="bm25", skip=2))
    return folder


def table(folder: Path, rows: str) -> Path:
    """A CSV beside the runs."""
    path = folder.parent / "participants.csv"
    path.write_text("\ufeff" + ROWS + rows, "utf-8")
    return path


def bring(folder: Path, dataset: str, curator: User, participants: Path | None = None) -> None:
    """Run the command."""
    words = ["--participants", str(participants)] if participants else []
    call_command(
        "import_runs", str(folder), f"--dataset={dataset}", "--architecture=lexical", "--why=the round's runs",
        f"--team={personal_team(curator).slug}", f"--by={curator.email}", *words,
    )  # fmt: skip


GOOD = "glasgow.bm25,University of Glasgow,,\ntwo,Waterloo,,learned-sparse\nthree.run,Delft,,\n"


def test_each_run_is_by_its_participant_and_one_notice_tells_of_all(
    demo: Dataset, folder: Path, curator: User, client: Client
) -> None:
    bring(folder, "demo", curator, table(folder, GOOD))
    assert notify_finished() == 0
    work()
    assert notify_finished() == 3
    assert notify_finished() == 0
    notice = Notice.objects.get(person=curator)
    assert notice.subject == "Scored: 3 of 3 runs on Demo"
    send_notifications()
    assert len(mail.outbox) == 1
    page = client.get("/datasets/demo/").content.decode()
    for name in ("University of Glasgow", "Waterloo", "Delft"):
        assert name in page
    assert personal_team(curator).name not in page
    names = dict(System.objects.values_list("participant", "name"))
    # files come by name: one, three, two
    assert names == {"University of Glasgow": "glasgow.bm25", "Delft": "bm25", "Waterloo": "bm25 (2)"}
    assert System.objects.get(participant="Waterloo").architecture == "learned-sparse"
    system = System.objects.get(participant="Delft")
    assert "Delft, submitted by" in client.get(system.get_absolute_url()).content.decode()
    assert "Delft" in client.get("/datasets/demo/board.csv").content.decode()
    assert "Delft" in client.get("/api/v1/datasets/demo/board/").content.decode()


def test_companions_of_the_runs_are_left_out_and_named(
    demo: Dataset, folder: Path, curator: User, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("README.md", "run.sh", "desktop.ini", "one.txt~"):
        (folder / name).write_text("no run")
    (folder / "metadata.json").write_text('{"model": "BM25"}')
    bring(folder, "demo", curator)
    assert Submission.objects.count() == 3
    assert "Skipped files, which are not runs: README.md, metadata.json, run.sh." in capsys.readouterr().out


def test_a_bulk_of_one_run_is_told_of_as_one(demo: Dataset, tmp_path: Path, curator: User) -> None:
    (tmp_path / "alone").mkdir()
    (tmp_path / "alone" / "one.txt").write_text(run_text(tag="bm25"))
    bring(tmp_path / "alone", "demo", curator)
    work()
    notify_finished()
    assert Notice.objects.get(person=curator).text == "The run is scored."


def test_every_problem_of_every_run_is_in_one_answer_and_nothing_is_stored(
    demo: Dataset, folder: Path, curator: User
) -> None:
    (folder / "one.txt").write_text("query Q0 doc rank score tag\n" + run_text())
    (folder / "three.run").write_text("q1 Q0 d1 1 nan bm25\n")
    rows = "two,Waterloo,,\nnobody,Delft,,\ntwo,Delft,,\none,,,\nthree,Delft,,quantum\n"
    with pytest.raises(CommandError) as refused:
        bring(folder, "demo", curator, table(folder, rows))
    said = str(refused.value)
    for part in (
        "No runs were imported.", "line 1 looks like a header", "has the score `nan`", "the folder has no run “nobody”",
        "the run “two” has a row already", "the participant of “one” is not a name", "“quantum” is not an architecture",
    ):  # fmt: skip
        assert part in said
    assert not Submission.objects.exists()
    assert not System.objects.exists()


def test_a_run_without_a_row_and_a_missing_table_are_named(demo: Dataset, folder: Path, curator: User) -> None:
    with pytest.raises(CommandError, match=r"no row for 2 runs: three.run, two.txt.gz"):
        bring(folder, "demo", curator, table(folder, "one,Glasgow,,\n"))
    with pytest.raises(CommandError, match=r"none.csv: no such file or folder"):
        bring(folder, "demo", curator, folder / "none.csv")


def test_a_table_that_is_no_csv_in_utf_8_is_refused_with_its_place(demo: Dataset, folder: Path, curator: User) -> None:
    path = table(folder, GOOD)
    path.write_bytes(path.read_bytes() + "two,Tübingen,,\n".encode("latin-1"))
    with pytest.raises(CommandError, match="the CSV is not UTF-8: byte 124 is 0xfc"):
        bring(folder, "demo", curator, path)
    path.write_text(f'{ROWS}one,"Delft"x,,\n')
    with pytest.raises(CommandError, match="line 2 is not valid CSV"):
        bring(folder, "demo", curator, path)


def test_two_groups_with_one_tag_have_names_that_name_neither_and_keep_them(
    demo: Dataset, folder: Path, curator: User
) -> None:
    bring(folder, "demo", curator, table(folder, GOOD))
    for path in folder.iterdir():
        path.unlink()
    (folder / "four.run").write_text(run_text(tag="bm25", skip=3))
    with pytest.raises(CommandError, match=r"bm25 \(2\) already has another run on Demo"):
        bring(folder, "demo", curator, table(folder, "four,Waterloo,,\n"))


def test_nobody_sends_a_run_in_the_name_of_another_team(demo: Dataset) -> None:
    api, other = Api(make_user("Alice")), personal_team(make_user("Bob"))
    for name in (other.name, other.name.upper()):
        refused = api.submit(run_text(), dataset="demo", system="one", participant=name)
        assert refused.status == 400
        assert "is a team on this site" in str(refused.body)
    assert api.submit(run_text(), dataset="demo", system="one", participant="A group").status == 201


def test_a_bulk_over_hidden_judgements_counts_towards_no_quota(secret: Dataset, folder: Path, curator: User) -> None:
    """So it is for who may read them, and recorded."""
    without_the_right = make_a_curator()
    personal_team(without_the_right)
    with pytest.raises(CommandError, match="read_qrels"):
        bring(folder, "secret", without_the_right)
    bring(folder, "secret", curator)
    assert Submission.objects.count() == 3
    assert not QuotaUse.objects.exists()
    assert AuditRecord.objects.get(action=COMPARED).actor == curator


def test_a_participant_is_kept_back_as_the_team_is(demo: Dataset, folder: Path, curator: User, client: Client) -> None:
    bring(folder, "demo", curator, table(folder, GOOD))
    system = System.objects.get(participant="Delft")
    make_anonymous(system, _in_a_month())
    work()
    assert Entry.objects.public().filter(system=system).exists()
    pages = [
        "/datasets/demo/", "/datasets/demo/board.csv", "/datasets/demo/board.json", "/api/v1/datasets/demo/board/", "/",
        system.get_absolute_url(), f"/systems/{system.slug}/bibtex.bib", f"/api/v1/systems/{system.slug}/", "/news/",
    ]  # fmt: skip
    for page in pages:
        response = client.get(page)
        assert response.status_code == 200
        assert b"Delft" not in b"".join(response)


def _in_a_month() -> object:
    from datetime import timedelta

    from django.utils import timezone

    return (timezone.now() + timedelta(days=30)).date()


@pytest.mark.long
def test_real_runs_of_a_round(shared_folder: Path, tmp_path: Path, curator: User) -> None:
    """TREC-COVID round 1: the runs as TREC has them, each by its tag."""
    source = shared_folder / "data" / "trec-covid-round1"
    import_dataset(source, ImportOptions(slug="tc1", hidden=False, runs_only=True))
    bring(source / "runs", "tc1", curator)
    work()
    runs = len(list((source / "runs").iterdir()))
    assert Entry.objects.public().filter(dataset__slug="tc1").count() == runs
    assert notify_finished() == runs
    assert Notice.objects.count() == 1
