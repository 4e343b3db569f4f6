"""The contamination gap on boards, the system's page, in compare, the API and exports; and where there is none."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.test import Client

from leaderboard.comparison.selection import entries_of_systems
from leaderboard.comparison.table import compare
from leaderboard.models import Dataset, Entry, Protection, System
from leaderboard.results.significance.hidden import known_difference
from leaderboard.results.significance.statements import Gap, statements
from tests.leaderboard.boards.test_permalinks import pass_time, permalink_of
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import make_source, make_system, record_boards, report, scored_dataset
from tests.leaderboard.entries_by_query import page_text, row_of, score_queries, shown, spread
from tests.pages import clear_page_cache, one_line

pytestmark = pytest.mark.django_db
MEASURE = "nDCG@10"


@pytest.fixture
def twins(db: None) -> tuple[Dataset, Dataset]:
    """Forty open and forty hidden topics. Reader gains .30 over BM25 on the open ones and .10 on the others."""
    public = scored_dataset(slug="public", measures=[MEASURE])
    hidden = scored_dataset(slug="hidden", measures=[MEASURE], hidden=True, twin_of=public)
    for seed, (name, first, second) in enumerate(
        [("BM25", 0.4, 0.42), ("Reader", 0.7, 0.52), ("Honest", 0.601, 0.62), ("Public only", 0.5, None)]
    ):
        system = make_system(name)
        score_queries(public, name, spread(first, seed), system=system, baseline=name == "BM25")
        if second is not None:
            score_queries(hidden, name, spread(second, 10 + seed), system=system, baseline=name == "BM25")
    compute_certainty(public)
    return public, hidden


def gap_of(dataset: Dataset, name: str) -> Gap | None:
    entry = Entry.objects.get(dataset=dataset, system__name=name)
    return statements([dataset.pk])[dataset.pk].for_entry(entry.pk, MEASURE).gap


def test_it_is_what_a_system_gains_more_on_public_topics(twins: tuple[Dataset, Dataset]) -> None:
    public, hidden = twins
    gap = gap_of(public, "Reader")
    assert gap is not None
    assert (gap.value, gap.public, gap.hidden) == pytest.approx((0.2, 0.3, 0.1))
    least = known_difference(Dataset.objects.get(pk=hidden.pk))
    assert least is not None
    # The hidden half's reach is the least significant difference and a step of rounding: nothing of its topics.
    assert least + 0.001 < gap.value - gap.low < least + 0.02
    assert gap.shown
    assert gap_of(hidden, "Reader") == gap
    honest = gap_of(public, "Honest")
    assert honest is not None
    assert not honest.shown
    assert honest.low < 0.001 < honest.high


def test_there_is_none_without_the_other_half_nor_of_the_baseline_or_a_reported_figure(
    twins: tuple[Dataset, Dataset],
) -> None:
    public, hidden = twins
    assert gap_of(public, "Public only") is None
    assert gap_of(public, "BM25") is None
    system = System.objects.get(name="Honest")
    for dataset in twins:
        report(dataset, make_source(f"paper-{dataset.slug}"), "Printed", ndcg=0.9)
        reported = Entry.objects.get(dataset=dataset, provenance="reported")
        Entry.objects.filter(pk=reported.pk).update(system=system)
        assert statements([dataset.pk])[dataset.pk].for_entry(reported.pk, MEASURE).gap is None
    Entry.objects.filter(dataset=hidden, system=system).exclude(provenance="reported").update(
        visibility=Entry.Visibility.HELD
    )
    found = Entry.objects.get(dataset=public, system=system, provenance="scored")
    assert statements([public.pk])[public.pk].for_entry(found.pk, MEASURE).gap is None, "what is held tells nothing"


@pytest.mark.parametrize(
    "change", [{"primary_measure": "AP"}, {"state": Dataset.State.PREPARING}, {"twin_of": None}], ids=str
)
def test_there_is_none_where_the_halves_are_not_alike(twins: tuple[Dataset, Dataset], change: dict[str, Any]) -> None:
    public, hidden = twins
    Dataset.objects.filter(pk=hidden.pk).update(**change)
    assert gap_of(public, "Reader") is None


def test_another_baseline_on_one_half_leaves_none(twins: tuple[Dataset, Dataset]) -> None:
    public, hidden = twins
    Entry.objects.filter(dataset=hidden, is_baseline=True).update(is_baseline=False)
    Entry.objects.filter(dataset=hidden, system__name="Honest").update(is_baseline=True)
    assert gap_of(public, "Reader") is None


def test_a_competition_tells_it_as_coarsely_as_its_scores(twins: tuple[Dataset, Dataset]) -> None:
    public, hidden = twins
    before = gap_of(public, "Reader")
    assert hidden.current_qrels is not None
    hidden.refresh_from_db()
    hidden.current_qrels.refresh_from_db()
    statistics = hidden.current_qrels.statistics
    statistics["least_difference"][MEASURE]["public"] = 0.06
    hidden.current_qrels.save()
    Dataset.objects.filter(pk=hidden.pk).update(protection=Protection.COMPETITION)
    gap = gap_of(public, "Reader")
    assert gap is not None
    assert before is not None
    assert gap.value - gap.low > 0.06 + 0.02 > before.value - before.low


def test_boards_have_it_as_columns_that_are_off_a_facet_and_a_chip(
    client: Client, twins: tuple[Dataset, Dataset]
) -> None:
    public, hidden = twins
    for dataset in twins:
        board = shown(dataset)
        assert "gap" not in {column.key for column in board.shown}
        reader = row_of(board, "Reader")
        assert reader.value("gap") == pytest.approx(0.2)
        assert (reader.value("gap-shown"), row_of(board, "Honest").value("gap-shown")) == (
            "significant",
            "not significant",
        )
        assert [row.entry.system for row in shown(dataset, facets=(("gap", ("shown",)),)).rows] == ["Reader"]
        page = page_text(client, dataset)
        assert page.count(">significant gap</a>") == 1
        assert "/docs/contamination/" in page
    assert "Hidden half</a>" in page_text(client, public)
    assert "Open half</a>" in page_text(client, hidden)
    chosen = client.get("/datasets/public/?columns=gap&columns=gap-interval&sort=gap").content.decode()
    assert "+0.200<" in chosen


def test_api_and_exports_have_it(client: Client, twins: tuple[Dataset, Dataset]) -> None:
    rows = {row["system"]: row for row in client.get("/api/v1/datasets/hidden/board/").json()["rows"]}
    gap = rows["Reader"]["contamination_gap"]
    assert gap["value"] == pytest.approx(0.2)
    assert gap["shown"] is True
    assert rows["BM25"]["contamination_gap"] is None
    assert rows["Reader"]["values"]["gap-shown"] == "significant"
    slug = System.objects.get(name="Reader").slug
    results = client.get(f"/api/v1/systems/{slug}/").json()["results"]
    assert [result["contamination_gap"] for result in results] == [gap, gap]
    csv = client.get("/datasets/public/board.csv").content.decode()
    assert "gap" in csv.splitlines()[0]
    assert client.get("/api/v1/datasets/public/").json()["twin"] == "hidden"
    assert client.get("/api/v1/datasets/hidden/").json()["twin"] == "public"


def test_the_systems_page_and_compare_say_it(client: Client, twins: tuple[Dataset, Dataset]) -> None:
    slugs = [System.objects.get(name=name).slug for name in ("Reader", "Honest")]
    assert client.get(f"/systems/{slugs[0]}/").content.decode().count("gap +0.200, significant") == 2
    assert client.get(f"/systems/{slugs[1]}/").content.decode().count("gap +0.001, not significant") == 2
    page = one_line(client.get(f"/compare/?system={slugs[0]}&system={slugs[1]}&dataset=hidden").content.decode())
    note = page.partition(">Contamination gap</a>")[2].partition("</li>")[0]
    assert re.search(r"Honest on Dataset \d+ \+0\.001 \(95% interval", note)
    assert note.count("significant)") == 2, "once per system"
    assert "gap +0.200" not in page
    for row in compare(slugs, entries_of_systems(slugs), "").rows:
        reader, honest = row.cells
        assert reader.gap == gap_of(twins[0], "Reader")
        assert reader.text["gap"][0] == "+0.200"
        assert honest.gap is not None
        assert not honest.gap.shown


def test_a_kept_page_follows_the_other_half(client: Client, twins: tuple[Dataset, Dataset]) -> None:
    public, hidden = twins
    assert page_text(client, public).count(">significant gap</a>") == 1
    system = System.objects.get(name="Reader")
    score_queries(hidden, "Reader", spread(0.72, 30), system=system)
    assert ">significant gap</a>" not in page_text(client, public)


def board_views(client: Client, path: str) -> dict[str, Any]:
    """Return the board at `path` as JSON and as CSV rows, without the address and the time that they cite."""
    data = client.get(f"{path}board.json").json()
    named = {name: value for name, value in data.items() if name not in ("as_of", "permalink")}
    cited = (data["permalink"], data["as_of"])
    table = client.get(f"{path}board.csv").content.decode()
    for text in cited:
        table = table.replace(text, "")
    page = client.get(f"{path}?columns=all", headers={"HX-Request": "true"}).content.decode()
    body = re.search(r"<tbody>.*</tbody>", page, re.DOTALL)
    assert body
    return {"data": named, "table": table, "body": re.sub(r"<button.*?</button>", "", body[0])}


def test_a_permalink_keeps_the_gaps_of_its_time(client: Client, twins: tuple[Dataset, Dataset]) -> None:
    public, hidden = twins
    qrels = public.current_qrels
    assert qrels is not None
    qrels.judged_by = {"judges": [{"called": "Ada", "kind": "person", "judgements": 7}]}
    qrels.statistics = {**qrels.statistics, "relevant_per_query": 1.2}
    qrels.save()
    pass_time()
    paths = [f"/datasets/{dataset.slug}/" for dataset in twins]
    before = {permalink_of(client, path): board_views(client, path) for path in paths}
    public_data, hidden_data = (view["data"] for view in before.values())
    for data in (public_data, hidden_data):
        gaps = {row["system"]: row["contamination_gap"] for row in data["rows"]}
        assert gaps["Reader"]["value"] == pytest.approx(0.2)
        assert {"gap", "gap-interval", "gap-shown"} <= {column["key"] for column in data["columns"]}
    assert any("Judged by: Ada" in note for note in public_data["notes"])
    assert any(note.startswith("Sparse labels: 1.2") for note in public_data["notes"])
    assert {link: board_views(client, link) for link in before} == before

    score_queries(hidden, "Reader", spread(0.72, 30), system=System.objects.get(name="Reader"))
    assert {link: board_views(client, link) for link in before} == before
    for path in paths:
        newer = permalink_of(client, path)
        assert newer not in before, "the other half has changed"
        assert board_views(client, newer) == board_views(client, path)
    assert gap_of(public, "Reader").value == pytest.approx(0.0)  # type: ignore[union-attr]
    Dataset.objects.filter(pk=hidden.pk).update(state=Dataset.State.PREPARING)
    clear_page_cache()
    assert ">significant gap</a>" not in client.get(next(iter(before))).content.decode()


def test_a_permalink_has_no_gap_of_a_time_before_the_other_half(client: Client) -> None:
    public = scored_dataset(slug="public", measures=[MEASURE])
    reader, bm25 = make_system("Reader"), make_system("BM25")
    score_queries(public, "BM25", spread(0.4), system=bm25, baseline=True)
    score_queries(public, "Reader", spread(0.7, 1), system=reader)
    compute_certainty(public)
    pass_time()
    link = permalink_of(client, "/datasets/public/")
    hidden = scored_dataset(slug="hidden", measures=[MEASURE], hidden=True, twin_of=public)
    score_queries(hidden, "BM25", spread(0.42, 2), system=bm25, baseline=True)
    score_queries(hidden, "Reader", spread(0.52, 3), system=reader)
    assert "gap" in client.get("/datasets/public/board.csv").content.decode().splitlines()[0].split(",")
    then = client.get(f"{link}board.csv").content.decode().splitlines()[0]
    assert "gap" not in then.split(",")


def test_past_boards_sort_with_gaps_and_without(client: Client, twins: tuple[Dataset, Dataset]) -> None:
    board = client.get("/api/v1/datasets/public/board/?sort=gap").json()
    past = client.get(f"/datasets/public/at/{board['as_of']}/board.json?sort=gap")
    assert past.json()["rows"] == board["rows"]
    Dataset.objects.update(twin_of=None)
    clear_page_cache()
    past = client.get(f"/datasets/public/at/{board['as_of']}/board.json?sort=gap")
    assert past.status_code == 200
    assert [row["contamination_gap"] for row in past.json()["rows"]] == [None] * 4


def test_a_board_whose_tests_are_awaited_takes_the_order(client: Client) -> None:
    public = scored_dataset(slug="public", measures=[MEASURE])
    scored_dataset(slug="hidden", measures=[MEASURE], hidden=True, twin_of=public)
    score_queries(public, "BM25", spread(0.4), baseline=True)
    record_boards()
    assert client.get("/datasets/public/?sort=gap").status_code == 200
