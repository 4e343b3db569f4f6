"""The sentence above a board: what it says in each case, on the page, in the API and in exports alike."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.test import Client
from django.utils import timezone

from leaderboard.boards.forest import ForestRow, draw_forest
from leaderboard.boards.summary import _percents
from leaderboard.boards.wording import p_values_text, significance_word
from leaderboard.core.text.dates import format_day
from leaderboard.core.text.numbers import signed
from leaderboard.models import Dataset, Entry, Qrels, System
from leaderboard.results.reported_facts import COST_UNIT, make_figure
from leaderboard.results.significance.statements import Statement, statements
from leaderboard.results.significance.types import EntryCertainty
from leaderboard.systems.challenges import raise_challenge, retract_challenge
from tests.factories import make_user
from tests.leaderboard.boards.test_boards_cached import benchmark_of
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import (
    cost,
    make_source,
    make_system,
    record_boards,
    report,
    score,
    scored_dataset,
)
from tests.leaderboard.entries_by_query import make_board, score_queries, spread
from tests.pages import clear_page_cache, one_line
from tests.reported_boards import load_reported

pytestmark = pytest.mark.django_db
UNTESTED = "Not separable from the best: not testable: the source gives no per-query scores."
UNMEASURED = (
    "Unjudged documents: unknown, because reported results have no runs. "
    "Judgments: public, of the original collections; scores copied, not recomputed. Cost: not reported."
)
ORIGIN = "Judgments: {judgments}."
UPLOADED = f"{ORIGIN} Cost: not timed (uploaded run)."
WITHHELD = "Unjudged documents: not shown, because it would reveal hidden judgments."
UNKNOWN = "Not separable from the best: not known yet."
ALONE = "Lead: no baseline to compare with."
OVER_SECOND = "Lead: no baseline; +0.100 over the second, %s: not tested."
LEAD = "vs BM25: +{}%* (+0.{} [{{ends}}]), significant (p < 0.001{})."
LITTLE = "vs BM25: +0.3% (+0.001 [{{ends}}]), not significant (p = 0.741{})."
HOLM = ", Holm-corrected p = 1.000"
BEFORE_AND_AFTER = " before and after Holm correction"
LONG = "A system whose name goes on and on, for 120 characters at most"
#: Day on which the results of these tests are published.
TODAY = format_day(timezone.now().date())
OTHERS = f"Not separable from the best: {LONG[:24]} 3, {LONG[:24]} 2, {LONG[:24]} 1 and 1 more (ranks 2 to 5)"


def tested(**means: float) -> Dataset:
    """An open board with these means, after its tests; that of BM25 is the baseline."""
    dataset = scored_dataset(measures=["nDCG@10"])
    by_query(dataset, means)
    compute_certainty(dataset)
    return dataset


def bounded(bound: float) -> Dataset:
    """The same with this upper bound of BM25, published before the board was recorded."""
    dataset = scored_dataset(measures=["nDCG@10"])
    by_query(dataset, {"BM25": 0.4, "First": 0.6})
    for entry in dataset.entries.all():
        entry.scores["Upper(nDCG)@10"] = bound if entry.is_baseline else 0.9
        entry.save()
    record_boards()
    compute_certainty(dataset)
    return dataset


def protected(**means: float) -> Dataset:
    """A board over hidden judgements."""
    dataset = scored_dataset(measures=["nDCG@10"], hidden=True)
    by_query(dataset, means)
    return dataset


def by_query(dataset: Dataset, means: dict[str, float]) -> None:
    for number, (name, mean) in enumerate(means.items(), 1):
        score_queries(dataset, name, spread(mean, number), baseline=name == "BM25")


def untested(**scores: tuple[float, float | None]) -> Dataset:
    """An open board before its tests: a score and a latency, if any, by system."""
    dataset = scored_dataset(measures=["nDCG@10"])
    for name, (value, latency) in scores.items():
        entry = score(dataset, name, ndcg=value, baseline=name == "BM25")
        if latency is not None:
            cost(entry, latency)
    return dataset


def reported(*, baseline: bool) -> Dataset:
    dataset, paper = scored_dataset(measures=["nDCG@10"]), make_source("paper")
    report(dataset, paper, "printed", ndcg=0.5)
    report(dataset, paper, "BM25", ndcg=0.4, baseline=baseline)
    return dataset


def of_two_configurations() -> Dataset:
    dataset, system = scored_dataset(measures=["nDCG@10"]), make_system("tuned")
    for configuration, value in (("k = 10", 0.5), ("k = 20", 0.6)):
        entry = score(dataset, system, ndcg=value)
        entry.configuration = configuration
        entry.save()
    record_boards()
    return dataset


#: A board, what is said of it, and the facts that its sentence rests on.
CASES: dict[str, tuple[Callable[[], Dataset], str, dict[str, Any]]] = {
    "significant, one tie": (
        lambda: tested(BM25=0.4, First=0.601, Second=0.6, Last=0.2),
        f"Best: First, nDCG@10 0.601. {LEAD.format(50.2, '201', BEFORE_AND_AFTER)} "
        f"Not separable from the best: Second (all 6 pairs tested). {UPLOADED}",
        {"better": True, "tied": ["Second"]},
    ),
    "not significant": (
        lambda: tested(BM25=0.4, Little=0.4012),
        f"Best: Little, nDCG@10 0.401. {LITTLE.format('')} "
        f"Not separable from the best: BM25 (1 pair tested). {UPLOADED}",
        {"better": False, "tied": ["BM25"]},
    ),
    "above the baseline's upper bound": (
        lambda: bounded(0.55),
        f"Best: First, nDCG@10 0.600. {LEAD.format(50.0, '200', '')} "
        f"Not separable from the best: none of 1 (1 pair tested). "
        f"Unjudged documents: cannot reverse the lead over BM25. {UPLOADED}",
        {"better": True, "above_bound": True},
    ),
    "below the baseline's upper bound": (
        lambda: bounded(0.65),
        f"Best: First, nDCG@10 0.600. {LEAD.format(50.0, '200', '')} "
        f"Not separable from the best: none of 1 (1 pair tested). "
        f"Unjudged documents: could reverse the lead over BM25. {UPLOADED}",
        {"better": True, "above_bound": False},
    ),
    "nothing of the baseline is unjudged": (
        lambda: bounded(0.4),
        f"Best: First, nDCG@10 0.600. {LEAD.format(50.0, '200', '')} "
        f"Not separable from the best: none of 1 (1 pair tested). {UPLOADED}",
        {"better": True, "above_bound": None},
    ),
    "no tie": (
        lambda: tested(BM25=0.4, First=0.8),
        f"Best: First, nDCG@10 0.800. {LEAD.format(100.0, '400', '')} "
        f"Not separable from the best: none of 1 (1 pair tested). {UPLOADED}",
        {"better": True, "tied": []},
    ),
    "everything ties": (
        lambda: tested(BM25=0.4, First=0.4012, Second=0.4006),
        f"Best: First, nDCG@10 0.401. {LITTLE.format(HOLM)} "
        f"Not separable from the best: all 2 others, including BM25 (all 3 pairs tested). {UPLOADED}",
        {"better": False, "tied": ["Second", "BM25"]},
    ),
    "two ties": (
        lambda: tested(BM25=0.4, First=0.602, Second=0.601, Third=0.6),
        f"Best: First, nDCG@10 0.602. {LEAD.format(50.5, '202', BEFORE_AND_AFTER)} "
        f"Not separable from the best: Second, Third (all 6 pairs tested). {UPLOADED}",
        {"better": True, "tied": ["Second", "Third"]},
    ),
    "owners of models": (
        lambda: tested(**{"BM25": 0.4, "First": 0.602, "maker/Second": 0.601, "maker/Third": 0.6}),
        f"Best: First, nDCG@10 0.602. {LEAD.format(50.5, '202', BEFORE_AND_AFTER)} "
        f"Not separable from the best: Second, Third (all 6 pairs tested). {UPLOADED}",
        {"better": True, "tied": ["maker/Second", "maker/Third"]},
    ),
    "many ties": (
        lambda: tested(BM25=0.4, First=0.603, Second=0.602, Third=0.601, Fourth=0.6),
        f"Best: First, nDCG@10 0.603. {LEAD.format(50.7, '203', BEFORE_AND_AFTER)} "
        f"Not separable from the best: Second, Third, Fourth (all 10 pairs tested). {UPLOADED}",
        {"better": True, "tied": ["Second", "Third", "Fourth"]},
    ),
    "hidden, significant": (
        lambda: protected(BM25=0.4, First=0.601, Second=0.59),
        "Best: First, nDCG@10 0.601. vs BM25: +50.2% (+0.201), significant (threshold {least}). "
        f"Not separable from the best: Second (threshold {{within}} for all 3 pairs). {WITHHELD} {UPLOADED}",
        {"better": True, "p": None, "tied": ["Second"]},
    ),
    "hidden, not significant": (
        lambda: protected(BM25=0.4, Little=0.405),
        "Best: Little, nDCG@10 0.405. vs BM25: +1.2% (+0.005), not significant (threshold {least}). "
        f"Not separable from the best: BM25 (threshold {{within}} for 1 pair). {WITHHELD} {UPLOADED}",
        {"better": False, "p": None, "tied": ["BM25"]},
    ),
    "reported": (
        lambda: reported(baseline=True),
        f"Best reported: printed, nDCG@10 0.500. vs BM25: +25.0%, not tested. {UNTESTED} {UNMEASURED}",
        {"better": None, "p": None, "tied": []},
    ),
    "reported without a baseline": (
        lambda: reported(baseline=False),
        f"Best reported: printed, nDCG@10 0.500. {OVER_SECOND % 'BM25'} {UNTESTED} {UNMEASURED}",
        {"relative": None, "better": None},
    ),
    "the baseline is best": (
        lambda: tested(BM25=0.6, Worse=0.4),
        f"Best: BM25, nDCG@10 0.600. Lead: none (the best is the baseline). "
        f"Not separable from the best: none of 1 (1 pair tested). {UPLOADED}",
        {"better": None, "tied": []},
    ),
    "the baseline alone": (
        lambda: untested(BM25=(0.4, None)),
        f"Best: BM25, nDCG@10 0.400. Lead: none (no other system is ranked with the baseline). {UPLOADED}",
        {"better": None, "tied": [], "cheapest": None},
    ),
    "one system alone": (
        lambda: untested(only=(0.4, None)),
        f"Best: only, nDCG@10 0.400. {ALONE} {UPLOADED}",
        {"relative": None, "tied": []},
    ),
    "cheapest is another": (
        lambda: untested(BM25=(0.4, 1.0), best=(0.6, 40.0), quick=(0.57, 8.0), slow=(0.58, 90.0)),
        f"Best: best, nDCG@10 0.600. vs BM25: +50.0%, significance not known yet. {UNKNOWN} "
        f"{ORIGIN} Cost: 40 ms per query, 12.3 MB index; faster and within 5% of its score: quick, 8.0 ms.",
        {"cheapest": "quick", "latency_ms": 8.0},
    ),
    "the best was uploaded, others were measured": (
        lambda: untested(BM25=(0.4, 1.0), best=(0.6, None), quick=(0.57, 8.0)),
        f"Best: best, nDCG@10 0.600. vs BM25: +50.0%, significance not known yet. {UNKNOWN} "
        f"{ORIGIN} Cost: not timed (uploaded run); within 5% of its score: quick, 8.0 ms.",
        {"cheapest": "quick", "latency_ms": 8.0},
    ),
    "more ties than can be named": (
        lambda: tested(BM25=0.4, **{f"{LONG[:24]} {n}": 0.6 + n / 1000 for n in range(5)}),
        f"Best: {LONG[:24]} 4, nDCG@10 0.604. {LEAD.format(51.0, '204', BEFORE_AND_AFTER)} "
        f"{OTHERS} (all 15 pairs tested). {UPLOADED}",
        {"tied": [f"{LONG[:24]} {n}" for n in (3, 2, 1, 0)]},
    ),
    "consecutive ranks": (
        lambda: tested(BM25=0.4, Last=0.3, **{f"{LONG[:24]} {n}": 0.6 + n / 1000 for n in range(5)}),
        f"Best: {LONG[:24]} 4, nDCG@10 0.604. {LEAD.format(51.0, '204', BEFORE_AND_AFTER)} "
        f"{OTHERS} (all 21 pairs tested). {UPLOADED}",
        {"tied": [f"{LONG[:24]} {n}" for n in (3, 2, 1, 0)]},
    ),
    "cheapest is the best": (
        lambda: untested(BM25=(0.4, 1.0), best=(0.6, 40.0)),
        f"Best: best, nDCG@10 0.600. vs BM25: +50.0%, significance not known yet. {UNKNOWN} "
        f"{ORIGIN} Cost: 40 ms per query, 12.3 MB index.",
        {"cheapest": "best", "latency_ms": 40.0},
    ),
    "the best is the fastest": (
        lambda: untested(BM25=(0.4, 1.0), best=(0.6, 4.0), slow=(0.58, 90.0)),
        f"Best: best, nDCG@10 0.600. vs BM25: +50.0%, significance not known yet. {UNKNOWN} "
        f"{ORIGIN} Cost: 4.0 ms per query, 12.3 MB index, the fastest of the 2 timed systems within 5% of its score.",
        {"cheapest": "best", "latency_ms": 4.0},
    ),
    "long name": (
        lambda: untested(**{LONG: (0.6, None), "other": (0.5, None)}),
        f"Best: A system whose name goes on and o…, nDCG@10 0.600. {OVER_SECOND % 'other'} {UNKNOWN} {UPLOADED}",
        {"best": LONG},
    ),
    "two configurations": (
        of_two_configurations,
        f"Best: tuned (k = 20), nDCG@10 0.600. {OVER_SECOND % 'tuned (k = 10)'} {UNKNOWN} {UPLOADED}",
        {"best": "tuned"},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_page_exports_and_api_say_the_same_of_each_board(client: Client, case: str) -> None:
    make, text, facts = CASES[case]
    dataset = make()
    board = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()
    said = board["summary"]
    row = next(row for row in board["rows"] if row["slug"] == said["best"] and row["rank"] == 1)
    delta, least = row["intervals"].get("delta", {}), board["least_difference"]
    ends = ", ".join(signed(end, 3) for end in delta.values())
    published = statements([dataset.pk])[dataset.pk].published
    within = f"{published.tied_within:.3f}" if published else ""
    judgments = f"{'hidden' if dataset.hidden else 'open'}, judges not stated"
    text = text.format(judgments=judgments, ends=ends, least=f"{least or 0:+.3f}", within=within)
    is_reported = text.startswith("Best reported")
    complete = f" {TODAY}" if dataset.hidden else f" {TODAY}, results for all queries"
    origin = "Lovelace and Hopper 2020" if is_reported else f"uploaded{complete}"
    text = re.sub(r"^(.*?nDCG@10 [0-9.]+)\. ", rf"\1 ({origin}). ", text, count=1)
    if not is_reported:
        text = text.replace(", nDCG@10", f" ({System.objects.get(slug=said['best']).team}), nDCG@10", 1)
    assert said["text"] == text
    names = dict(System.objects.values_list("slug", "name"))
    named = {**said, "tied": [names[slug] for slug in said["tied"]]}
    named |= {key: names[said[key]] if said[key] else None for key in ("best", "cheapest")}
    assert {key: named[key] for key in facts} == facts
    assert (said["score"], said["relative"]) == (row["values"]["nDCG@10"], row["values"].get("relative"))
    assert said["better"] == row["better_than_baseline"]
    assert verdict(client.get(f"/datasets/{dataset.slug}/").content.decode()) == text
    total, (label, colon, rest) = board["total"], text.partition(": ")
    whole = f"{label} of all {total} systems" if total > 1 else label
    view = urlencode({"q": names[said["best"]], "columns": "all"})
    filtered = client.get(f"/datasets/{dataset.slug}/?{view}").content.decode()
    assert verdict(filtered) == f"{whole}{colon}{rest}"
    written = client.get(f"/datasets/{dataset.slug}/board.md").content.decode()
    assert text in re.sub(r"\\([<*\[\]])", r"\1", written)


@pytest.mark.parametrize(
    ("reported", "note"),
    [
        (0.9, "Best reported: printed, 0.900, not tested (Lovelace and Hopper 2020; ranked separately). "),
        (0.3, ""),
    ],
)
def test_a_better_reported_score_is_named_beside_the_best(client: Client, reported: float, note: str) -> None:
    dataset = untested(BM25=(0.4, None), First=(0.5, None))
    report(dataset, make_source("paper"), "printed", ndcg=reported)
    summary = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["summary"]
    assert f"nDCG@10 0.500 (uploaded {TODAY}, results for all queries). {note}vs BM25: " in summary["text"]
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert (" among scored systems" in words_of(page, "headline")) is bool(note)
    home = one_line(client.get("/").content.decode())
    assert ("Best reported: printed, 0.900, not tested." in home) is bool(note)


@pytest.mark.parametrize(("second", "test"), [(0.6, "not separable (p = "), (0.3, "significant (p < 0.001)")])
def test_a_lead_over_the_second_states_its_test(client: Client, second: float, test: str) -> None:
    dataset = tested(First=0.601, Second=second)
    text = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["summary"]["text"]
    assert f"Lead: no baseline; {signed(0.601 - second, 3)} over the second, Second: {test}" in text


def test_the_share_of_unjudged_documents_is_shown_without_a_bound(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    score(dataset, "First", ndcg=0.5, **{"Hole@10": 0.07})
    text = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["summary"]["text"]
    assert "Unjudged documents: 7% of the best system’s top 10, scored as not relevant. " in text


def test_an_open_challenge_of_the_best_system_is_quoted_with_a_link(client: Client) -> None:
    dataset = untested(BM25=(0.4, None), First=(0.5, None))
    first = System.objects.get(name="First")
    person = make_user("Dana")
    challenge = raise_challenge(first, person, "training", "The *paper* says that it was tuned on the test queries.")
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    text = one_line(page[page.index('id="verdict"') : page.index("</section>")])
    assert f'href="/systems/{first.slug}/#challenge-{challenge.pk}"' in text
    assert "“The paper says that it was tuned on the …”" in text
    assert "First (challenged) leads BM25 by " in words_of(text, "headline")
    retract_challenge(challenge, person)
    assert "it was tuned on" not in client.get(f"/datasets/{dataset.slug}/").content.decode()


def test_a_self_reported_price_is_a_cost(client: Client) -> None:
    dataset = untested(BM25=(0.4, None), First=(0.5, None))
    first = dataset.entries.get(system__name="First")
    first.figures = [make_figure("cost", "0.0213", COST_UNIT, "header of the run")]
    first.save()
    record_boards()
    summary = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["summary"]
    assert summary["text"].endswith("Cost: 0.0213 USD per 1,000 queries, self-reported.")


def test_a_lead_over_a_baseline_that_all_pairs_do_not_separate_says_how_both_can_hold(client: Client) -> None:
    dataset = tested(BM25=0.4, First=0.4085, Second=0.404, Third=0.403, Fourth=0.402)
    board = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()
    said, rows = board["summary"], {row["system"]: row for row in board["rows"]}
    pair = rows["BM25"]["certainty"]["p_best_corrected"]
    assert said["better"] is True
    assert said["p"] < 0.05 < pair
    assert rows["BM25"]["slug"] in said["tied"]
    assert (
        f"better when tested alone (p = {said['p']:.3f}, Holm-corrected p = {said['p_corrected']:.3f}). "
        "Not separable from the best: "
    ) in said["text"]
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert verdict(page) == said["text"]
    assert '<b class="up">' not in page
    assert "significant" not in verdict(page)
    card = one_line(client.get("/").content.decode())
    assert "Not separable from the best: 4 others, among them BM25" in card
    assert "better when tested alone" in card
    assert '<span class="up">' not in card


def test_the_difference_and_its_interval_stay_when_others_submit(client: Client) -> None:
    dataset = tested(BM25=0.4, First=0.4085)
    address = f"/api/v1/datasets/{dataset.slug}/board/"
    before = client.get(address).json()["summary"]["text"]
    lead = before[before.index("(+0.0") : before.index("]")]
    by_query(dataset, {f"System {number}": 0.39 + number / 10_000 for number in range(9)})
    compute_certainty(dataset)
    after = client.get(address).json()["summary"]["text"]
    assert lead in after
    assert "+2.1%* (" in before
    assert "+2.1% (" in after, "a corrected mark is a star alone"


def verdict(page: str) -> str:
    return words_of(page, "statements")


def words_of(page: str, name: str) -> str:
    """The words of the verdict's paragraph with this class."""
    paragraph = re.search(rf'id="verdict".*?<p class="{name}">(.*?)</p>', page, re.DOTALL)
    assert paragraph is not None
    return " ".join(unescape(re.sub("<[^>]+>", "", paragraph[1])).split())


def test_the_summary_explains_the_marks_of_the_rows(client: Client) -> None:
    page = client.get(f"/datasets/{tested(BM25=0.4, First=0.601, Second=0.6, Last=0.2).slug}/").content.decode()
    assert words_of(page, "row-key") == "95% CI not separable from best separable from next"
    page = client.get(f"/datasets/{untested(BM25=(0.4, None), First=(0.5, None)).slug}/").content.decode()
    assert 'class="row-key"' not in page
    board = tested(BM25=0.4, First=0.4085, Second=0.404, Third=0.403, Fourth=0.402)
    page = client.get(f"/datasets/{board.slug}/").content.decode()
    assert "not separable from best (BM25 too: each pair has its own test)" in words_of(page, "row-key")


def test_a_filter_without_rows_hides_the_summary_the_table_and_the_exports(client: Client) -> None:
    address = f"/datasets/{untested(BM25=(0.4, None), First=(0.5, None)).slug}/"
    parts = ('id="verdict"', 'class="forest"', "<table", "Export this table")
    page = client.get(address).content.decode()
    assert all(part in page for part in parts)
    page = client.get(f"{address}?q=nobody").content.decode()
    part = page.partition('id="board-part"')[2].partition('id="board-notes"')[0]
    assert "No rows match" in part
    assert not any(hidden in part for hidden in parts)


HEADLINES: dict[str, tuple[Callable[[], Dataset], str]] = {
    "open": (
        lambda: tested(BM25=0.4, First=0.601, Second=0.6, Last=0.2),
        r"First leads BM25 by 50% \(95% CI \d+ to \d+%\); one system cannot be separated from it\.",
    ),
    "alone in front": (
        lambda: tested(BM25=0.4, First=0.6),
        r"First leads BM25 by 50% \(95% CI \d+ to \d+%\); the other system can be separated from it\.",
    ),
    "hidden": (
        lambda: protected(BM25=0.4, First=0.601, Second=0.59),
        r"First leads BM25 by 50% \(significant\); .*",
    ),
    "reported": (lambda: reported(baseline=True), r"printed leads BM25 by 25% \(reported, not tested\)\."),
    "no baseline": (
        lambda: reported(baseline=False),
        r"printed has the best nDCG@10, 0\.500 \(differences not tested\)\.",
    ),
    "not separable from the baseline": (
        lambda: tested(BM25=0.4, Little=0.4012),
        r"Little is first, 0\.3% above BM25 \(95% CI .*\); not separable from BM25\.",
    ),
    "not separable from the baseline after correction": (
        lambda: tested(BM25=0.4, First=0.4085, Second=0.404, Third=0.403, Fourth=0.402),
        r"First is first, 2\.1% above BM25 \(95% CI .*%, uncorrected\); not separable from BM25 and three others\.",
    ),
    "pairs without a baseline": (
        lambda: tested(First=0.6, Second=0.5),
        r"First has the best nDCG@10, 0\.600; the other system can be separated from it\.",
    ),
    "baseline": (
        lambda: tested(BM25=0.4, Last=0.2),
        r"BM25 is the baseline and leads; the other system can be separated from it\.",
    ),
}


def test_judgments_of_a_collection_name_its_source(client: Client) -> None:
    dataset = tested(BM25=0.4, First=0.6)
    citation = "@article{key,\n  author = {Ada Lovelace and Grace Hopper and Alan Turing},\n  year = 1950,\n}"
    for fields, source in (
        ({"citation": citation, "homepage": "https://example.org/data"}, "Lovelace et al. 1950"),
        ({"citation": "@book{broken", "homepage": "https://example.org/data"}, "example.org"),
    ):
        Dataset.objects.filter(pk=dataset.pk).update(**fields)
        clear_page_cache()
        assert f"Judgments: open ({source})." in verdict(client.get(f"/datasets/{dataset.slug}/").content.decode())
    Qrels.objects.filter(version__dataset=dataset).update(judged_by={"stated": "NIST assessors"})
    clear_page_cache()
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert "Judgments: open, judged by NIST assessors (example.org)." in verdict(page)


def test_the_cost_of_a_reported_system_says_where_it_was_measured(client: Client) -> None:
    load_reported()
    cost = client.get("/api/v1/benchmarks/beir/board/").json()["summary"]["text"].rpartition("Cost: ")[2]
    assert cost == (
        "6,100 ms (CPU) or 450 ms (GPU) per query on DBPedia, on the paper’s hardware; model size not reported."
    )


@pytest.mark.parametrize(("board", "sentence"), HEADLINES.values(), ids=HEADLINES)
def test_one_sentence_says_who_leads_by_how_much(board: Callable[[], Dataset], sentence: str, client: Client) -> None:
    page = client.get(f"/datasets/{board().slug}/").content.decode()
    assert re.fullmatch(sentence, words_of(page, "headline")), words_of(page, "headline")


def test_the_interval_of_the_lead_is_that_of_the_difference_over_the_baselines_score(client: Client) -> None:
    dataset = tested(BM25=0.4, First=0.6)
    rows = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["rows"]
    first = next(row for row in rows if row["system"] == "First")
    low, high = (100 * first["certainty"][end] / 0.4 for end in ("delta_low", "delta_high"))
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert f"(95% CI {low:.0f} to {high:.0f}%)" in words_of(page, "headline")


def test_the_figure_follows_the_table_if_few_rows_remain(client: Client) -> None:
    dataset = tested(BM25=0.4, First=0.601, Second=0.6, **{f"System {n}": 0.3 - n / 100 for n in range(5)})
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    table = page[page.index("<tbody") :]
    assert table.index("System 4") < table.index("figure-row")
    assert "more rows follow" not in page


def test_the_first_screen_draws_differences_from_the_baseline(client: Client) -> None:
    dataset = tested(**{"BM25": 0.4, "First": 0.601, "Second": 0.6, **{f"System {n}": 0.3 - n / 100 for n in range(9)}})
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    plots = re.findall(r'<svg class="forest-plot".*?</svg></figure>', page)
    assert len(plots) == 2, "in the verdict, and between rows on phones"
    assert plots[0] == plots[1]
    assert page.index(plots[1], page.index("<tbody")) > page.index("System 2")
    names = re.findall(r'class="forest-name" title="(.*?)"', plots[0])
    assert names == ["First", "Second", "BM25", *(f"System {n}" for n in range(3))]
    assert re.findall(r"mark is-(\w+)", plots[0]) == ["best", "tied", "baseline", *["other"] * 3]
    assert "7 more rows follow" in page
    assert re.findall(r'class="value"[^>]*>([^<]*)', plots[0])[:3] == ["+0.201", "+0.200", "±0.000"]
    positions = [float(x) for x in re.findall(r'class="mark[^>]* x="([\d.]+)%"', plots[0])]
    assert positions == sorted(positions, reverse=True)
    zero = re.search(r'class="zero" x1="([\d.]+)%"', plots[0])
    assert zero is not None
    assert float(zero[1]) == positions[2], "the baseline is on the line"


def test_an_interval_that_is_significant_only_uncorrected_is_dashed_and_in_the_key() -> None:
    rows = [ForestRow("First", 0.2, (0.1, 0.3), "best"), ForestRow("Second", 0.1, (0.01, 0.2), "other", is_lost=True)]
    plot = draw_forest(rows, "nDCG@10", "BM25")
    assert re.findall(r'<g class="(.*?)">', plot) == ["interval", "interval is-dashed"]
    assert "only before correction" in plot
    assert "only before" not in draw_forest(rows[:1], "nDCG@10", "BM25")


def test_names_in_the_plot_have_no_owner_and_end_before_the_first_mark_of_their_row() -> None:
    rows = [ForestRow("org/model", 0.3, (0.2, 0.4), "best"), ForestRow("BM25 (no stemming)", -0.1, None, "other")]
    plot = draw_forest([*rows, ForestRow("BM25", 0.0, None, "baseline")], "nDCG@10", "BM25")
    assert re.findall(r'class="forest-name" title="(.*?)">(.*?)<', plot) == [
        ("org/model", "model"),
        ("BM25 (no stemming)", "BM25 (no stemming)"),
        ("BM25", "BM25"),
    ]
    widths = [float(width) for width in re.findall(r'<foreignObject[^>]* width="([\d.]+)%"', plot)]
    marks = [float(x) for x in re.findall(r'class="mark[^>]* x="([\d.]+)%"', plot)]
    assert widths[0] == widths[2] > widths[1] > 35
    assert all(width < mark for width, mark in zip(widths, marks, strict=True))


def test_reported_differences_on_the_first_screen_are_crosses(client: Client) -> None:
    dataset, paper = scored_dataset(), make_source("paper")
    name = "A system with a name of more than twenty-one characters"
    report(dataset, paper, "BM25", baseline=True, ndcg=0.4)
    report(dataset, paper, name, ndcg=0.5)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    plot = page[page.index('class="forest"') : page.index("</figure>")]
    assert re.findall(r"mark is-(\w+)", plot) == ["untested", "baseline"]
    assert '<span class="is-untested">×</span> not tested' in plot
    assert "best" not in plot.partition("<svg")[0]
    assert "A system with a name of more than" in plot, "the style sheet cuts what does not fit"


def test_the_baseline_is_drawn_below_many_better_systems(client: Client) -> None:
    dataset = scored_dataset(measures=["nDCG@10"])
    for number in range(9):
        score(dataset, f"System {number}", ndcg=0.9 - number / 100)
    score(dataset, "BM25", ndcg=0.1, baseline=True)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    names = re.findall(r'class="forest-name" title="(.*?)"', page[page.index("forest-plot") : page.index("</figure>")])
    assert names == [*(f"System {n}" for n in range(5)), "BM25"]


def test_where_lower_is_better_the_best_is_the_lowest(client: Client) -> None:
    dataset = scored_dataset(measures=["Hole@10", "nDCG@10"], primary_measure="Hole@10")
    score(dataset, "BM25", baseline=True, ndcg=0.5, **{"Hole@10": 0.2})
    score(dataset, "few", ndcg=0.4, **{"Hole@10": 0.1})
    page = client.get(f"/datasets/{dataset.slug}/?measure=Hole@10").content.decode()
    team = System.objects.get(name="few").team
    assert verdict(page).startswith(
        f"Best: few ({team}), Hole@10 0.100 (uploaded {TODAY}, results for all queries). vs BM25: −50.0%, "
        "significance not known yet. "
    )


def test_a_board_without_results_says_nothing(client: Client) -> None:
    dataset = scored_dataset()
    assert client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["summary"] is None
    assert 'id="verdict"' not in client.get(f"/datasets/{dataset.slug}/").content.decode()


def test_more_than_twenty_comparisons_say_how_many_chance_outlines(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EntryCertainty, "is_lost_by_correction", property(lambda self: True))
    small, large = make_board(), tested(BM25=0.4, **{f"System {n}": 0.3 + n / 200 for n in range(21)})
    compute_certainty(small)
    said = "If all 21 systems were equal, about 1 of them would be outlined by chance."
    assert said in client.get(f"/datasets/{large.slug}/").content.decode()
    assert said in client.get(f"/datasets/{large.slug}/?q=3").content.decode(), "of the whole board"
    page = client.get(f"/datasets/{small.slug}/").content.decode()
    assert "outlined by chance" not in page
    assert 'class="up is-lost"' in page
    assert "significant only before correction, when the system is tested alone." in one_line(page)


def test_the_legend_of_an_open_board_with_one_row_left_has_no_empty_number(client: Client) -> None:
    dataset = make_board()
    compute_certainty(dataset)
    for address in (f"/datasets/{dataset.slug}/", f"/datasets/{dataset.slug}/?q=First"):
        page = " ".join(client.get(address).content.decode().split())
        assert "First" in page
        assert "The bar at the left marks the best system and the systems that these tests do not" in page
        assert "This threshold is higher" not in page, "the words of hidden boards"


def test_the_legend_over_hidden_judgements_says_both_thresholds(client: Client) -> None:
    dataset = protected(BM25=0.4, First=0.601, Second=0.59)
    said = client.get(f"/api/v1/datasets/{dataset.slug}/board/").json()["least_difference"]
    page = " ".join(client.get(f"/datasets/{dataset.slug}/").content.decode().split())
    within = re.search(r"less than (\d\.\d{3}) behind\. This threshold is higher", page)
    assert within is not None
    assert float(within[1]) > said
    assert f"by at least {said:+.3f}, which is significant" in page
    assert "Italic: not tested, because hidden judgments only allow tests of higher scores." in page


def test_a_shared_best_score_is_a_tie_and_no_lead(client: Client) -> None:
    page = client.get(f"/datasets/{untested(BM25=(0.4, None), First=(0.4, None), Second=(0.3, None)).slug}/")
    assert words_of(page.content.decode(), "headline") == "BM25 ties with First at 0.400."


def test_a_configuration_follows_its_separator_and_has_a_title(client: Client) -> None:
    page = client.get(f"/datasets/{of_two_configurations().slug}/").content.decode()
    assert '<span class="detail">\xa0· <span class="configuration" title="k = 10">k = 10</span></span></small>' in page


def test_a_system_in_two_configurations_ties_once(client: Client) -> None:
    dataset, paper = scored_dataset(measures=["nDCG@10"]), make_source("paper")
    report(dataset, paper, "First", ndcg=0.4)
    report(dataset, paper, "Second", ndcg=0.4)
    Entry.objects.filter(system__name="Second").update(configuration="4 GPUs")
    report(dataset, paper, "Second", ndcg=0.4)
    page = client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert words_of(page, "headline") == "First ties with Second at 0.400."
    benchmark_of(dataset)
    assert 'id="figure-pareto"' not in client.get("/benchmarks/all/").content.decode(), "nobody reports a cost"


def test_a_forest_plot_has_a_band_of_the_differences_that_are_not_significant() -> None:
    rows = [ForestRow("First", 0.1, None, "best"), ForestRow("BM25", 0.0, None, "baseline")]
    assert "band" not in draw_forest(rows, "nDCG@10", "BM25")
    for threshold, span in ((0.05, 0.108), (-0.05, 0.162)):
        plot = draw_forest(rows, "nDCG@10", "BM25", 0, threshold)
        [(left, width)] = re.findall(r'class="band" x="([\d.]+)%" width="([\d.]+)%"', plot)
        [zero] = re.findall(r'class="zero" x1="([\d.]+)%"', plot)
        assert float(zero) - float(left) == pytest.approx(0 if threshold > 0 else float(width), abs=0.02)
        assert float(width) == pytest.approx(42 * 0.05 / span, abs=0.02)


def test_differences_are_within_one_source(client: Client) -> None:
    dataset, first, second = scored_dataset(measures=["nDCG@10"]), make_source("first"), make_source("second")
    report(dataset, first, "alone", ndcg=0.6)
    report(dataset, second, "compared", ndcg=0.5)
    report(dataset, second, "BM25", ndcg=0.4, baseline=True)
    benchmark_of(dataset)
    page = client.get("/benchmarks/all/").content.decode()
    assert "Lead: Lovelace and Hopper 2020 reports no BM25." in verdict(page)
    assert 'class="forest"' not in page, "the best system has no difference"
    report(dataset, second, "leader", ndcg=0.7)
    page = client.get("/benchmarks/all/").content.decode()
    plot = page[page.index('class="forest"') : page.index("</figure>")]
    assert re.findall(r'class="forest-name" title="(.*?)"', plot) == ["leader", "compared", "BM25"]
    assert re.findall(r'class="value"[^>]*>([^<]*)', plot) == ["+0.300", "+0.100", "±0.000"]


def test_the_numbers_of_a_lead_have_the_same_decimals() -> None:
    assert _percents(0.278, 0.133, 0.4504) == ["27.8", "13.3", "45.0"]
    assert _percents(0.5, 0.28, 0.7) == ["50", "28", "70"]
    assert _percents(0.5, -0.01, 0.7) == ["50.0", "−1.0", "70.0"]


def test_a_significant_lead_with_a_large_corrected_p_value_states_its_reason() -> None:
    statement = Statement(better=True, p=0.016, p_corrected=0.078, comparisons=5, ranks=(1, 1))
    reason = "; Westfall–Young over all pairs separates it from all others"
    p_values = "p = 0.016, Holm-corrected p = 0.078"
    assert (significance_word(statement), p_values_text(statement)) == (
        "significant in the tests of all pairs",
        p_values + reason,
    )
    lost = replace(statement, ranks=(1, 2))
    assert significance_word(lost) == "significant only before correction"
    assert p_values_text(lost) == p_values
    assert reason not in p_values_text(replace(statement, p_corrected=0.03))
    assert reason not in p_values_text(replace(statement, better=False))
