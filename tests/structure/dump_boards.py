"""Write what every board says, and ever said, as text: `python tests/structure/dump_boards.py FILE`.

The script makes a site with a history (results that come, are withdrawn, hidden and shown again, renamed systems and
teams, new judgements and measures, judgements that are hidden later, rounds, seed sets, costs, a mean over parts),
under a clock of its own. It asks for each present board and system page, each permalink, their exports and views, the
API, the news and the Atom feed. Run it on two revisions of the code, and compare the files: where only the code's
structure changed, they are the same.
"""

from __future__ import annotations

import argparse
import datetime
import logging
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.board import prepare  # noqa: E402

ENDINGS = ("csv", "json", "md", "tex", "bib")
#: Of a dataset's board and of a benchmark's, beside the default.
VIEWS = {
    "dataset": (
        "?sort=system",
        "?weight-effectiveness=2&weight-latency=1",
        "?measure=R@100",
        "?provenance=scored",
    ),
    "benchmark": ("?view=rank", "?view=delta", "?sort=borda", "?zero_shot=1"),
}
#: What differs from answer to answer.
_CHANCE = re.compile(r'nonce="[^"]*"|name="csrfmiddlewaretoken" value="[^"]*"')


class Clock:
    """The site's time: it stands still until it is moved on."""

    def __init__(self) -> None:
        self.now = datetime.datetime(2026, 1, 1, 12, tzinfo=datetime.UTC)

    def __call__(self) -> datetime.datetime:
        return self.now

    def tick(self) -> None:
        """An hour later. No page and no row that was kept is younger."""
        self.now += datetime.timedelta(hours=1)


def open_boards(clock: Clock) -> dict[str, Any]:
    """Datasets, a benchmark and their first results, each an hour after the one before."""
    from leaderboard.models import Benchmark, BenchmarkMember
    from leaderboard.results.board_rows.revisions import benchmark_changed
    from tests.factories import make_dataset
    from tests.leaderboard.entries import make_source, make_system, report, score, score_seeds, scored_dataset
    from tests.leaderboard.entries_by_query import make_board

    opened = scored_dataset(name="Open", slug="open", task="question answering", domain="web")
    hidden = scored_dataset(name="Hidden", slug="hidden", hidden=True)
    whole = make_dataset(name="Whole", slug="whole", hidden=False, measures=["nDCG@10"])
    parts = [scored_dataset(name=f"Part {n}", slug=f"part-{n}", part_of=whole) for n in (1, 2)]
    tested = make_board()
    benchmark = Benchmark.objects.create(slug="all", name="All of them")
    for position, dataset in enumerate([opened, hidden, whole, tested]):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
    benchmark_changed(benchmark)
    bm25, dense = make_system("BM25"), make_system("Dense & <sparse>", licence="MIT", year=2024)
    dense.bibtex = "@misc{dense, author={Ada Lovelace}, title={Dense}}"
    dense.save()
    entries: dict[str, Any] = {}
    for place, dataset in enumerate([opened, hidden, *parts]):
        clock.tick()
        score(dataset, bm25, baseline=True, ndcg=0.25123 + place / 100, recall=0.5)
        entries[dataset.slug] = score(dataset, dense, ndcg=0.41789 - place / 50, recall=0.61234)
        entries[f"tied {dataset.slug}"] = score(dataset, "Tied", ndcg=0.41789 - place / 50, recall=0.1)
    clock.tick()
    source = make_source("paper")
    report(opened, source, "Printed", ndcg=0.4567)
    report(opened, source, "Printed BM25", baseline=True, ndcg=0.24)
    score_seeds(opened, "Seeds", {"ndcg": 0.31, "recall": 0.5}, {"ndcg": 0.35, "recall": 0.7})
    entries["closed"] = score(opened, make_system("Closed", closed_api=True), ndcg=0.9)
    entries["private"] = score(opened, "Kept back", ndcg=0.8, public=False)
    entries["twin"] = score(opened, dense, ndcg=0.40001)
    return {"datasets": [opened, hidden, whole, *parts, tested], "entries": entries}


def describe_anew(clock: Clock, made: dict[str, Any]) -> None:
    """Costs, prices, tests, names, doubts and rounds."""
    from leaderboard.models import Entry, Price, Round
    from leaderboard.results.efficiency import price_changed
    from leaderboard.results.publishing.descriptions import system_changed, team_changed
    from leaderboard.results.publishing.scored import publish_entry
    from leaderboard.rounds.lifecycle import save_round
    from leaderboard.systems.challenges import raise_challenge
    from tests.factories import make_user
    from tests.leaderboard.certainty import compute_certainty
    from tests.leaderboard.entries import cost, evaluate, machine, make_system

    opened, entries = made["datasets"][0], made["entries"]
    measured = cost(entries["open"], 20.0)
    for number, milliseconds in enumerate((3.0, 5.0, 90.0)):
        clock.tick()
        cost(entries[("tied open", "closed", "twin")[number]], milliseconds, bm25=1.0 + number / 3)
    cost(entries["open"], 2.0, hardware=machine(gpu="H100"))
    cost(entries["private"], 7.0)
    clock.tick()
    Price.objects.create(hardware=measured.hardware, per_hour=3, valid_from="2020-01-01")
    price_changed(measured.hardware)
    clock.tick()
    compute_certainty(made["datasets"][-1])
    clock.tick()
    system = entries["open"].system
    system.name, system.licence, system.parameter_count = "Renamed", "GPL", 110_000_000
    system.save()
    system_changed(system)
    clock.tick()
    system.team.name = "The Winners"
    system.team.save()
    team_changed(system.team)
    clock.tick()
    raise_challenge(system, make_user("Alice"), "training", "It was trained on the very queries of the test.")
    clock.tick()
    row = Round(slug="spring", name="Spring", dataset=opened, opens_at=clock.now, closes_at=clock.now,
                reveals_at=clock.now)  # fmt: skip
    row.closes_at += datetime.timedelta(hours=1)
    row.reveals_at += datetime.timedelta(hours=2)
    save_round(row)
    publish_entry(
        Entry(
            provenance=Entry.Provenance.SCORED,
            submission_reference="late",
            round_id=row.pk,
            late=True,
            run_type="manual",
        ),
        evaluate(opened, make_system("Late"), ndcg=0.33, recall=0.2),
    )


def change_results(clock: Clock, made: dict[str, Any]) -> None:
    """What teams and curators do to results, and to whole boards."""
    from leaderboard.models import Entry
    from leaderboard.results.board_rows.revisions import Kind, board_changed
    from leaderboard.results.measures import set_measures
    from leaderboard.results.publishing.publication import refresh_scores
    from leaderboard.results.publishing.visibility import (
        name_baseline,
        quarantine,
        restore,
        set_visibility,
        unpublish,
        withdraw_entries,
    )
    from tests.leaderboard.entries import renew_judgements, score

    opened, hidden, _, first, *_ = made["datasets"]
    entries = made["entries"]

    def reload(name: str) -> Entry:
        return Entry.objects.get(pk=entries[name].pk)

    steps = [
        lambda: set_visibility(entries["private"].submission_reference, public=True),
        lambda: set_visibility(entries["private"].submission_reference, public=False),
        lambda: set_visibility(entries["private"].submission_reference, public=True),
        lambda: name_baseline(reload("open")),
        lambda: quarantine(reload("closed"), "it cannot be so good"),
        lambda: unpublish(reload("twin"), "asked for by its owner"),
        lambda: restore(reload("closed")),
        lambda: withdraw_entries(entries["open"].submission_reference, "we found a bug"),
        lambda: withdraw_entries(entries["part-1"].submission_reference, "another bug"),
        lambda: score(first, entries["part-1"].system, ndcg=0.7, recall=0.7),
        lambda: set_measures(opened, "R@100", ["R@100", "nDCG@10"]),
        lambda: (renew_judgements(opened), board_changed(opened, Kind.RESCORED)),
        lambda: score(opened, "After", baseline=True, ndcg=0.5, recall=0.6),
        lambda: score(opened, entries["open"].system, ndcg=0.55, recall=0.66),
        lambda: withdraw_entries(entries["tied hidden"].submission_reference, "no longer ours"),
        lambda: Entry.objects.filter(dataset=hidden).update(private_scores={"nDCG@10": 0.111}),
        lambda: board_changed(hidden, Kind.REVEALED),
        lambda: type(opened).objects.filter(pk=opened.pk).update(hidden=True),
        lambda: refresh_scores(type(opened).objects.get(pk=opened.pk)),
    ]
    for step in steps:
        clock.tick()
        step()


def addresses() -> Iterator[str]:
    """All that is asked for."""
    from leaderboard.models import BenchmarkVersion, BoardChange, Dataset, System

    times = sorted(
        {
            *BoardChange.objects.values_list("at", flat=True),
            *BenchmarkVersion.objects.values_list("at", flat=True),
        }
    )
    boards = [("dataset", slug) for slug in Dataset.objects.order_by("pk").values_list("slug", flat=True)]
    for kind, slug in [*boards, ("benchmark", "all")]:
        path = f"/{kind}s/{slug}/"
        yield f"/api/v1{path}board/"
        for board in (path, *(f"{path}at/{at:%Y-%m-%dT%H:%M:%SZ}/" for at in times)):
            yield from (board, *(board + view for view in VIEWS[kind]))
            yield from (f"{board}board.{ending}" for ending in ENDINGS)
    yield from (f"/systems/{slug}/" for slug in System.objects.order_by("pk").values_list("slug", flat=True))
    yield from ("/", "/news/", "/news/atom.xml", "/datasets/", "/benchmarks/", "/efficiency/", "/figures/")


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    options = parser.parse_args()
    with ExitStack() as after, tempfile.TemporaryDirectory(prefix="runboard-dump-") as folder:
        prepare(folder, after)
        from django.test import Client
        from django.utils import timezone

        logging.disable()
        clock = Clock()
        timezone.now = clock  # type: ignore[assignment]
        made = open_boards(clock)
        describe_anew(clock, made)
        change_results(clock, made)
        clock.tick()
        client, asked = Client(headers={"host": "localhost"}), 0
        with options.file.open("w", encoding="utf-8") as file:
            for address in addresses():
                answer = client.get(address)
                file.write(f"==> {address} {answer.status_code}\n")
                file.write(_CHANCE.sub("", answer.content.decode()) + "\n")
                asked += 1
    print(f"{asked} answers in {options.file}")


if __name__ == "__main__":
    main()
