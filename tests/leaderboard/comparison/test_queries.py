"""Pages of queries: open judgements alone, and no text that its dataset does not show."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils.html import escape

from leaderboard.comparison.queries import detail
from leaderboard.comparison.queries.collection import query_url
from leaderboard.core.storage.store import Area, path_of
from leaderboard.datasets import derived_files
from leaderboard.datasets.derived_files import top_documents
from leaderboard.datasets.qrels import JudgementsNotOpen, open_judgements
from leaderboard.models import Dataset
from tests.leaderboard.entries import make_system
from tests.leaderboard.open_runs import open_dataset, run_for
from tests.leaderboard.tiny_collection import HEADER, lines_of
from tests.pages import clear_page_cache

pytestmark = [pytest.mark.django_db, pytest.mark.sampled_on_postgresql]

GOOD = {"q1": ["d1", "d2", "d3"], "q2": ["d3", "d4"]}
POOR = {"q1": ["d3", "d4", "d2"], "q2": ["d5", "d4", "d3"]}


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    """The tiny dataset with BM25 and a better system."""
    dataset = open_dataset(tmp_path)
    run_for(dataset, "BM25", POOR, baseline=True)
    run_for(dataset, "newcomer", GOOD)
    return dataset


def text_of(page: str) -> str:
    """What a page says, without its tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", page.partition("<main")[2]))


def test_a_query_shows_what_each_system_finds_with_grades_and_holes(client: Client, dataset: Dataset) -> None:
    page = client.get("/datasets/tiny/queries/q1/").content.decode()
    text = text_of(page)
    assert "query number 1" in text
    assert "Relevant: 2 of 2 judged documents" in text
    assert text.index("BM25") < text.index("newcomer")
    assert "nDCG@10 1.000" in text
    first_row = page[page.index("<tbody>") : page.index("</tr>", page.index("<tbody>"))]
    holes, graded = re.findall(r'class="grade( is-hole)?(?: is-relevant)?"', first_row)
    assert (holes, graded) == (" is-hole", "")
    assert "not judged:" in first_row  # in words, not by its look alone
    assert "Title 3" in first_row
    assert "words of document 1" in text
    assert "/datasets/tiny/queries/q2/" in page


def test_the_list_is_sorted_by_the_server_and_says_how_hard_each_query_is(client: Client, dataset: Dataset) -> None:
    usual = client.get("/datasets/tiny/queries/").content.decode()
    assert 'aria-sort="descending"' in usual, "what systems disagree on comes first"
    hardest = client.get("/datasets/tiny/queries/?sort=mean").content.decode()
    easiest = client.get("/datasets/tiny/queries/?sort=mean:desc").content.decode()
    assert "2 judged queries, scores of 2 systems" in text_of(hardest)
    order = [page.index("queries/q1/") < page.index("queries/q2/") for page in (hardest, easiest)]
    assert sorted(order) == [False, True]
    assert 'aria-sort="ascending"' in hardest
    assert 'aria-sort="descending"' in easiest
    by_id = client.get("/datasets/tiny/queries/?sort=query:desc").content.decode()
    assert by_id.index("queries/q2/") < by_id.index("queries/q1/")
    found = client.get("/datasets/tiny/queries/?q=Q2").content.decode()
    assert "queries/q2/" in found
    assert "queries/q1/" not in found
    assert found.index("<small>q2</small>") < found.index("queries/q2/"), "the number is before the text"
    missing = client.get("/datasets/tiny/queries/?q=nowhere").content.decode()
    assert "0 of 2 judged queries match" in missing
    assert "No query contains “nowhere”." in missing
    assert '<a class="button" href="/datasets/tiny/queries/">' in missing
    crumbs = missing.partition('class="crumbs"')[2].partition("</p>")[0]
    assert re.findall('href="(.*?)"', crumbs) == ["/benchmarks/", "/datasets/tiny/"], "as on the board"
    for wrong in ("sort=nonsense", "page=7", "page=x", "measure=nonsense", "sort=mean:up"):
        assert client.get(f"/datasets/tiny/queries/?{wrong}").status_code == 400


def test_hidden_judgements_have_no_pages_of_queries_and_the_guard_refuses(client: Client, tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path, hidden=True, slug="secret")
    assert client.get("/datasets/secret/queries/").status_code == 404
    assert client.get("/datasets/secret/queries/q1/").status_code == 404
    with pytest.raises(JudgementsNotOpen):
        open_judgements(dataset)
    dataset.hidden = False
    assert open_judgements(dataset).query_ids == ("q1", "q2")
    dataset.state = Dataset.State.PREPARING
    with pytest.raises(JudgementsNotOpen):
        open_judgements(dataset)


def test_unknown_datasets_queries_and_systems(client: Client, dataset: Dataset) -> None:
    assert client.get("/datasets/nowhere/queries/").status_code == 404
    assert client.get("/datasets/tiny/queries/q3/").status_code == 404  # not judged in this split
    assert client.get("/datasets/tiny/queries/q1/?system=nobody").status_code == 400
    many = "&".join(f"system=s{number}" for number in range(13))
    assert client.get(f"/datasets/tiny/queries/q1/?{many}").status_code == 400


def test_what_queries_and_documents_say_is_shown_only_where_it_is_public(client: Client, dataset: Dataset) -> None:
    Dataset.objects.update(queries_visibility="participants", documents_visibility="curators")
    clear_page_cache()
    page = text_of(client.get("/datasets/tiny/queries/q1/").content.decode())
    assert "Query q1" in page
    assert "query number" not in page
    assert "Title" not in page
    assert "words of" not in page
    assert "d1" in page
    listed = text_of(client.get("/datasets/tiny/queries/").content.decode())
    assert "query number" not in listed
    assert "listed by id" in listed


def test_a_dataset_without_its_documents_names_them_by_id(client: Client, tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path, {"corpus.jsonl": None}, runs_only=True, slug="runs")
    run_for(dataset, "only", GOOD)
    page = text_of(client.get("/datasets/runs/queries/q1/").content.decode())
    assert "Documents are not stored here" in page
    assert "d2" in page


ODD = ["a/b", "q?x=1", "q#2", "100%", "a+b", "ä", "..", "a//", "q&amp;", "'\"<b>"]


def test_a_query_of_any_id_has_a_page(client: Client, tmp_path: Path) -> None:
    changes = {
        "queries.jsonl": lines_of([{"_id": name, "text": f"asks for {name}"} for name in ODD]),
        "qrels/test.tsv": HEADER + "".join(f"{name}\td1\t1\n" for name in ODD),
        "qrels/train.tsv": None,
    }
    run_for(open_dataset(tmp_path, changes), "only", {name: ["d1"] for name in ODD})
    listed = client.get("/datasets/tiny/queries/").content.decode()
    for name in ODD:
        url = query_url("tiny", name)
        page = client.get(url)
        assert page.status_code == 200, name
        assert escape(f"asks for {name}") in page.content.decode()
        assert "<b>" not in page.content.decode().partition('id="judged"')[0]
        assert f'href="{escape(url)}"' in listed


def test_systems_are_chosen_by_the_address_and_private_results_are_not_there(client: Client, dataset: Dataset) -> None:
    chosen = run_for(dataset, "third", GOOD | {"q1": ["d2"]}).system
    run_for(dataset, "kept back", GOOD | {"q1": ["d4"]}, public=False)
    page = text_of(client.get(f"/datasets/tiny/queries/q1/?system={chosen.slug}").content.decode())
    head = page[: page.index("Choose systems")]
    assert "third" in head
    assert "newcomer" not in head
    assert "kept back" not in page


def test_ranks_that_few_systems_have_are_folded_on_phones(client: Client, dataset: Dataset) -> None:
    for name in ("third", "fourth", "fifth"):
        run_for(dataset, name, GOOD | {"q1": ["d1"]})
    page = client.get("/datasets/tiny/queries/q1/").content.decode()
    assert page.count('<tr class="is-sparse">') == 2, "three of five systems have one document"
    assert "Show all ranks" in page


def test_runs_that_are_not_prepared_do_not_fold_ranks(
    client: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    entries = [run_for(dataset, name, GOOD | {"q1": ["d1"]}) for name in ("third", "fourth", "fifth")]
    runs = {detail.first_run(entry) for entry in entries}
    read = detail.top_documents
    monkeypatch.setattr(detail, "top_documents", lambda run, excluded: None if run in runs else read(run, excluded))
    page = client.get("/datasets/tiny/queries/q1/").content.decode()
    assert '<th class="rank" scope="row">1</th>' in page
    assert "is-sparse" not in page


def test_pages_take_as_many_queries_for_many_systems_as_for_few(client: Client, dataset: Dataset) -> None:
    def queries(address: str) -> int:
        clear_page_cache()
        with CaptureQueriesContext(
            connection,
        ) as captured:
            assert client.get(address).status_code == 200
        return len(captured)

    addresses = ("/datasets/tiny/queries/", "/datasets/tiny/queries/q1/")
    few = [queries(address) for address in addresses]
    for number in range(6):
        run_for(dataset, make_system(f"system {number}"), GOOD | {"q2": [f"d{number % 5 + 1}"]})
    assert [queries(address) for address in addresses] == few


def test_a_large_run_waits_for_the_command_and_the_page_says_so(
    client: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derived_files, "QUICK_RUN_BYTES", 0)
    run = run_for(dataset, "huge", {"q1": ["d4"], "q2": ["d1"]}).evaluation.run  # type: ignore[union-attr]
    assert top_documents(run) is None
    assert "has not been prepared" in client.get("/datasets/tiny/queries/q1/").content.decode()
    call_command("prepare_query_pages", "tiny", stdout=StringIO())
    found = top_documents(run)
    assert found is not None
    assert found.get_documents("q1") == ["d4"]
    assert path_of(Area.TOP_DOCUMENTS, run.sha256).exists()
    with pytest.raises(CommandError, match="nowhere"):
        call_command("prepare_query_pages", "nowhere")
