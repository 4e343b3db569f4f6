"""Success@5 by topic and pooled, as LoTTE has it: topics make the mean, the pooled collection stands beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from leaderboard.boards.pages import benchmark_page
from leaderboard.boards.state import BoardState
from leaderboard.models import Benchmark
from leaderboard.systems.records import house_system
from tests.leaderboard.open_runs import open_dataset, run_for
from tests.leaderboard.tiny_collection import HEADER

pytestmark = pytest.mark.django_db


def test_topics_are_averaged_and_the_pooled_collection_is_shown(tmp_path: Path) -> None:
    system = house_system(slug="one", name="One", architecture="dense", description="", parameters={})
    last = ["d1", "d2", "d3", "d4", "d5"]  # and d6, the relevant one, behind them
    found = {
        "writing": {"q1": ["d6", "d1"], "q2": [*last, "d6"]},
        "science": {"q1": ["d6", "d1", "d2"], "q2": [*last[:4], "d6"]},
        "pooled": {"q1": [*last, "d6"], "q2": [*last, "d6"]},
    }
    corpus = "".join(f'{{"_id": "d{n}", "title": "", "text": "words"}}\n' for n in range(1, 7))
    judged = "".join(f"q{query}\td6\t1\n" for query in (1, 2))
    benchmark = Benchmark.objects.create(slug="topics", name="Topics", measure="Success@5")
    for position, (name, rankings) in enumerate(found.items()):
        changes = {"corpus.jsonl": corpus, "qrels/test.tsv": HEADER + judged, "qrels/train.tsv": None}
        dataset = open_dataset(tmp_path, changes, slug=name, primary="Success@5")
        run_for(dataset, system, rankings)
        benchmark.members.create(dataset=dataset, position=position, counted=name != "pooled")
    page = benchmark_page("topics", BoardState())
    assert page is not None
    (row,) = page.board.rows
    assert [row.value(name) for name in found] == [0.5, 1.0, 0.0]
    assert row.value("mean") == 0.75
