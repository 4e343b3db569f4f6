"""The generated board is for developers: it is refused elsewhere, every page of it has something to show, and it
leaves nothing behind.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client
from pytest_django import DjangoCaptureOnCommitCallbacks

from leaderboard.core.storage.runs import open_run
from leaderboard.figures.registry import FIGURES
from leaderboard.models import Benchmark, Dataset, DatasetFile, Entry, Evaluation, Run, System, Team
from submissions.models import Job
from submissions.queue.queue import create_requested_jobs
from tests.generated.__main__ import main
from tests.generated.board import generate_board

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

#: Figures without data here: the dataset has no documents, no systems trained on it, no results of three dates, and no
#: tests of all pairs.
NOTHING_TO_SHOW = {
    "rank-ranges",
    "in-domain",
    "progress",
    "document-lengths",
    "relevance-by-length",
    "overlap",
    "approximate-search",
}
#: Of a generated dataset: queries and judgements to download, judgements to score by, runs and the first of each.
FILES = 2 + 1 + 4 + 4
KINDS = (Benchmark, Dataset, Entry, Evaluation, Run, System, Team)


@pytest.mark.parametrize(("debug", "embedded"), [(False, True), (True, False), (False, False)])
def test_it_is_refused_outside_development(settings: object, debug: bool, embedded: bool) -> None:
    settings.DEBUG, settings.EMBEDDED = debug, embedded  # type: ignore[attr-defined]
    with pytest.raises(SystemExit, match="development"):
        main([])
    assert not Benchmark.objects.exists()


def stored_files(settings: object) -> set[Path]:
    """What is in the store and in private storage."""
    kept = Path(settings.VAR)  # type: ignore[attr-defined]
    return {path for area in ("store", "private") for path in (kept / area).rglob("*") if path.is_file()}


def test_a_developer_gets_a_board_and_can_remove_it(
    settings: object,
    client: Client,
    django_capture_on_commit_callbacks: DjangoCaptureOnCommitCallbacks,
    tmp_path: Path,
) -> None:
    settings.DEBUG = settings.EMBEDDED = True  # type: ignore[attr-defined]
    settings.VAR = tmp_path / "var"  # type: ignore[attr-defined]  # other tests leave files of the same content
    files = stored_files(settings)
    before = {kind: kind.objects.count() for kind in KINDS}
    main(["--systems", "12", "--datasets", "3"])
    page = client.get("/benchmarks/generated/").content.decode()
    assert page.count("<tr") >= 12
    assert "Amber finder 1" in page
    with pytest.raises(SystemExit, match="already"):
        main([])
    create_requested_jobs()  # what a worker found of it goes with it
    assert Job.objects.filter(dataset__benchmarks__slug="generated").exists()
    assert len(stored_files(settings) - files) == 3 * FILES
    with django_capture_on_commit_callbacks(execute=True):
        main(["--remove"])
    assert stored_files(settings) == files
    assert {kind: kind.objects.count() for kind in KINDS} == before


def text_of(client: Client, address: str) -> str:
    """What the page at the address says, without its markup."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    return " ".join(re.sub(r"<[^>]+>", " ", answer.content.decode()).split())


def test_every_page_of_it_has_something_to_show(client: Client) -> None:
    generate_board(6, 2)
    page = text_of(client, "/compare/?system=generated-0&system=generated-1")
    assert "Amber finder 1" in page
    assert "Basalt finder 1" in page
    assert "By query on Generated 1" in page
    assert "Jaccard" in page
    queries = text_of(client, "/datasets/generated-1/queries/")
    assert "history of science in collection 1" in queries
    assert "q50" in queries
    query = client.get("/datasets/generated-1/queries/q01/").content.decode()
    assert "history of science in collection 1" in query
    assert query.count("d1-01-00") >= 6  # judged relevant, and found by every system
    for slug in FIGURES:
        of = "?system=generated-1" if FIGURES[slug].subjects == ("system",) else ""
        page = text_of(client, f"/figures/{slug}/{of}")
        drawn = client.get(f"/figures/{slug}.json{of}").json()["data"]
        assert bool(drawn) == (slug not in NOTHING_TO_SHOW), slug
        assert "Generated" in page or not drawn, slug


def test_its_files_and_runs_are_what_their_rows_say(client: Client) -> None:
    generate_board(5, 1)
    for file in DatasetFile.objects.all():
        answer = client.get(f"/datasets/generated-1/files/{file.name}")
        assert answer.status_code == 200
        assert len(answer.getvalue()) == file.size
    for run in Run.objects.distinct():
        with open_run(run.sha256) as text:
            lines = text.read().splitlines()
        assert run.size == sum(len(line) + 1 for line in lines)
        assert run.lines == len(lines)
