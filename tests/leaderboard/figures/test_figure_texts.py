"""Names in figures: text, whatever they look like. Plotly would read tags, entities, templates and links in them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from leaderboard.figures.model import TEMPLATES
from leaderboard.figures.registry import FIGURES
from leaderboard.models import Benchmark, BenchmarkMember, Dataset, System
from tests.leaderboard.certainty import compute_certainty
from tests.leaderboard.entries import date_results, record_boards
from tests.leaderboard.open_runs import run_for
from tests.leaderboard.results.test_profile_pages import collection, look
from tests.pages import clear_page_cache

pytestmark = pytest.mark.django_db

NASTY = "<i>&lt;%{x}"
PLAIN = "&lt;i&gt;&amp;lt;%{x}"


def texts(value: Any, key: str = "") -> Iterator[tuple[str, str]]:
    """Every text within, with what it is called."""
    if isinstance(value, str):
        yield key, value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from texts(inner, name)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner, key)


@pytest.fixture
def everything(tmp_path: Path) -> str:
    """A benchmark of two open collections with runs, all of it named so. The first dataset's slug."""
    datasets = [collection(tmp_path, slug) for slug in ("tiny", "other")]
    benchmark = Benchmark.objects.create(slug="all", name=NASTY)
    better = System.objects.create(slug="better", name="better", architecture="dense", parameter_count=7)
    for position, dataset in enumerate(datasets):
        BenchmarkMember.objects.create(benchmark=benchmark, dataset=dataset, position=position)
        run_for(dataset, "BM25", {"q1": ["d5", "d1"], "q2": ["d3"]}, baseline=True)
        run_for(dataset, better, {"q1": ["d1"], "q2": ["d3"]})
        run_for(dataset, "third", {"q1": ["d1"], "q2": ["d5"]})
        look(dataset)
        compute_certainty(dataset)
    date_results("2024-01-05", "2024-02-05", "2025-01-05")
    for each in Dataset.objects.all():
        each.name, each.task, each.domain = f"{NASTY} {each.slug}", f"{NASTY} task", f"{NASTY} domain"
        each.save()
    for system in System.objects.all():
        system.name = f"{NASTY} {system.pk}"
        system.save()
    record_boards()
    clear_page_cache()
    return datasets[0].slug


def test_no_name_is_markup_in_any_figure(client: Client, everything: str) -> None:
    named = set()
    for slug, figure in FIGURES.items():
        for query in (f"benchmark=all&x=parameters&dataset={everything}", "benchmark=all&x=parameters"):
            query = query if "x" in figure.choices else query.replace("&x=parameters", "")
            answer = client.get(f"/figures/{slug}.json?{query}")
            if answer.status_code == 404:
                continue
            found = answer.json()
            for key, text in texts([found["data"], found["layout"]]):
                if key in TEMPLATES:
                    assert "i>" not in text, slug
                    continue
                assert "<" not in text, (slug, text)
                named |= {slug} if PLAIN in text else set()
            assert "&lt;i" not in str(found["table"]), figure.title
    assert named >= FIGURES.keys() - {"in-domain", "query-differences", "difficulty", "approximate-search"}
