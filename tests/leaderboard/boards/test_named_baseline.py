"""A baseline that is another run than the site's BM25 is called by its name on pages, figures, exports and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.test import Client

from evaluation.runs.stored import run_name
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, Entry, Team
from leaderboard.systems.records import house_system
from tests.leaderboard.entries import make_system, score, scored_dataset
from tests.leaderboard.open_runs import open_dataset, run_for

pytestmark = pytest.mark.django_db

NAME = "PS-r1-bm25all"
FIGURES = ("deltas", "wins", "pareto", "means", "progress", "pairs")


def named(dataset: Dataset) -> Entry:
    """The run that a curator imported as the dataset's baseline."""
    system = house_system(
        slug="ps", name=f"{NAME} ({dataset.name})", architecture="other", description="", parameters={}
    )
    return score(dataset, system, ndcg=0.4, recall=0.5, baseline=True)


def visible(content: str) -> str:
    """The text of an answer."""
    return re.sub(r"<[^>]+>", " ", content)


@pytest.fixture
def dataset() -> Dataset:
    """A board whose baseline is a named run, in two benchmarks: alone, and beside a second dataset."""
    dataset = scored_dataset(name="Round 1")
    named(dataset)
    ours = Team.objects.create(slug="ours", name="Our team")
    score(dataset, make_system("Ours", team=ours), ndcg=0.5, recall=0.6)
    score(dataset, make_system("Theirs"), ndcg=0.3, recall=0.2)
    other = scored_dataset(name="Round 2")
    second = house_system(slug="ps2", name=f"{NAME} (Round 2)", architecture="other", description="", parameters={})
    score(other, second, ndcg=0.2, recall=0.1, baseline=True)
    score(other, "Theirs 2", ndcg=0.3, recall=0.2)
    benchmark = Benchmark.objects.create(slug="rounds", name="Rounds", measure="nDCG@10")
    for position, member in enumerate((dataset, other)):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=member, position=position)
    return dataset


def addresses(dataset: Dataset) -> Iterator[str]:
    """Whatever shows or exports the dataset."""
    page = f"/datasets/{dataset.slug}/"
    systems = [entry.system.slug for entry in dataset.entries.select_related("system")]
    for board in (page, "/benchmarks/rounds/", "/benchmarks/rounds/?view=delta"):
        yield board
        path, _, query = board.partition("?")
        yield f"/api/v1{path}board/?{query}"
        for suffix in ("csv", "json", "md", "tex", "bib"):
            yield f"{path}board.{suffix}?{query}"
    for slug in systems:
        yield from (f"/systems/{slug}/", f"/api/v1/systems/{slug}/")
    yield from ("/news/", "/news/atom.xml", "/teams/ours/", "/")
    for figure in FIGURES:
        for subject in (f"dataset={dataset.slug}", "benchmark=rounds"):
            yield f"/figures/{figure}/?{subject}"
            yield f"/figures/{figure}.json?{subject}"


def mentions(client: Client, addresses: Iterator[str] | list[str], at_least: int) -> dict[str, list[str]]:
    """By address of those that answer where BM25 is said."""
    found, answered = {}, 0
    for address in addresses:
        response = client.get(address)
        if response.status_code != 200:
            continue
        answered += 1
        text = visible(b"".join(response).decode())
        # Costs are compared with BM25, whatever the baseline is.
        text = text.replace("× BM25", "").replace("mean latency over BM25's", "")
        lines = [text[max(0, at.start() - 60) : at.end() + 30] for at in re.finditer(r"\bBM25\b", text)]
        if lines:
            found[address] = lines
    assert answered >= at_least
    return found


def test_nothing_calls_a_named_baseline_bm25(client: Client, dataset: Dataset) -> None:
    assert mentions(client, addresses(dataset), at_least=40) == {}


def test_nor_does_anything_by_query(client: Client, tmp_path: Path) -> None:
    dataset = open_dataset(tmp_path)
    poor, good = (
        {"q1": ["d3", "d4", "d2"], "q2": ["d5", "d4", "d3"]},
        {"q1": ["d1", "d2"], "q2": ["d3", "d4"]},
    )
    system = house_system(
        slug="ps", name=f"{NAME} ({dataset.name})", architecture="other", description="", parameters={}
    )
    run_for(dataset, system, poor, baseline=True)
    ours = run_for(dataset, "newcomer", good)
    page = f"/datasets/{dataset.slug}/"
    figures = [
        f"/figures/{slug}{end}?dataset={dataset.slug}" for slug in ("difficulty", "deltas") for end in ("/", ".json")
    ]
    found = mentions(
        client,
        [
            page, f"{page}queries/", f"{page}queries/q1/", *figures, ours.system.get_absolute_url(),
            f"/compare/?system={system.slug}&system={ours.system.slug}",
        ],
        at_least=9,
    )  # fmt: skip
    assert found == {}
    assert NAME in client.get(f"{page}queries/").content.decode()
    assert f"median, {NAME} (2 systems)." in client.get(figures[0]).content.decode()


def test_its_name_stands_where_differences_do(client: Client, dataset: Dataset) -> None:
    """The positive control: these name what they are taken to."""
    assert f"Δ vs {NAME}" in client.get(f"/datasets/{dataset.slug}/").content.decode()
    assert f"+0.100 over {NAME}" in client.get("/news/").content.decode()
    ours = dataset.entries.select_related("system").get(system__name="Ours").system
    system = visible(client.get(ours.get_absolute_url()).content.decode())
    assert f"Δ vs {NAME}" in system
    assert f"Compare with {NAME}" in " ".join(system.split())
    assert f"vs {NAME} (" in client.get(f"/figures/deltas.json?dataset={dataset.slug}").content.decode()


@pytest.mark.parametrize(("file", "tags", "name"), [
    ("cord19.vespa.ai-bm25.txt.gz", ["cord19.vespa.ai-bm25"], "cord19.vespa.ai-bm25"),
    ("cord19.vespa.ai-bm25", [], "cord19.vespa.ai-bm25"), ("sab20.1.meta.docs.run.GZ", ["a", "b"], "sab20.1.meta.docs"),
    ("mine.trec", [], "mine"), (".txt", [], ".txt"),
])  # fmt: skip
def test_a_run_is_called_by_its_tag_else_by_its_file(file: str, tags: list[str], name: str) -> None:
    assert run_name(Path("folder.d", file), tags) == name
