"""The same run scored a hundred times, on either database, by any number of threads: identical to the last bit."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from django.conf import settings

from leaderboard.core.storage.runs import store_run
from leaderboard.core.storage.store import Area, path_of
from leaderboard.models import Dataset, Evaluation
from leaderboard.results.records import per_query_values
from leaderboard.systems.records import house_system
from submissions.jobs.kinds.score import evaluate_run
from submissions.models import Job
from tests.factories import make_job
from tests.faults.bits import digest
from tests.faults.repetitions import full
from tests.submissions.collections import DOCUMENTS, QUERIES, make_collection
from tests.submissions.workers import work

pytestmark = [pytest.mark.database, pytest.mark.django_db]

TIMES = 100 if full() else 3
THREADS = (1, 4) if full() else (4,)
#: The same in a process without a database; it prints what `digest` gives.
_ELSEWHERE = """
import sys
from pathlib import Path
from evaluation.judgements.qrels import read_qrels
from evaluation.runs.score import ScoringTarget, score_run
from tests.faults.bits import digest
run, qrels, *measures = sys.argv[1:]
scored = score_run(Path(run), ScoringTarget(read_qrels(Path(qrels))), measures)
print(digest(scored.per_query, scored.means))
"""


def write_run(path: Path) -> None:
    """A run whose queries differ, so that sums and means have something to round."""
    chance = random.Random(6)
    lines = []
    for query in QUERIES:
        documents = ["d1", "d3", *chance.sample(DOCUMENTS[3:], 200)]
        chance.shuffle(documents)
        lines += [f"{query} Q0 {each} 1 {chance.random():.6f} test" for each in documents]
    path.write_text("\n".join(lines) + "\n")


def test_a_run_has_the_same_numbers_every_time(tmp_path: Path) -> None:
    dataset = make_collection(tmp_path)
    path = tmp_path / "run.txt"
    write_run(path)
    stored = store_run(path)
    for number in range(TIMES):
        system = house_system(
            slug=f"same-{number}", name=f"Same {number}", architecture="dense", description="", parameters={}
        )
        payload = {"system_slug": system.slug, "run_sha256": stored.sha256, "size": stored.size}
        make_job(dataset, payload=payload)
    work()
    assert set(Job.objects.values_list("state", flat=True)) == {"done"}
    evaluations = list(Evaluation.objects.all())
    assert len(evaluations) == TIMES
    found = {digest(per_query_values(each), each.means) for each in evaluations}
    assert found == {_computed(path, dataset)}
    names = evaluations[0].measures
    assert found == {_elsewhere(path, dataset, names, threads) for threads in THREADS}


def test_one_bit_is_seen_and_so_is_a_sum_in_another_order(tmp_path: Path) -> None:
    """The control: what would go by how it was computed is not called the same."""
    dataset = make_collection(tmp_path)
    path = tmp_path / "run.txt"
    write_run(path)
    assert dataset.current_qrels is not None
    scored = evaluate_run(store_run(path), dataset, dataset.current_qrels, lambda share: None)
    same = digest(scored.per_query, scored.means)
    changed = scored.per_query.copy()
    changed.flat[3] = np.nextafter(changed.flat[3], 2.0)
    assert digest(changed, scored.means) != same
    sums = {
        name: float(sum(scored.per_query[::-1, column])) / len(scored.per_query)
        for column, name in enumerate(scored.means)
    }
    assert sums == pytest.approx(scored.means, abs=1e-12)
    assert digest(scored.per_query, sums) != same


def test_a_scorer_that_goes_by_the_order_of_lines_is_seen(tmp_path: Path) -> None:
    """Of equal scores ours takes the documents in one order; the control's takes them as they come."""
    dataset = make_collection(tmp_path)
    lines = [(query, f"d{number}") for query in QUERIES for number in range(1, 41)]
    ours, controls = set(), set()
    for name in ("one", "another"):
        random.Random(name).shuffle(lines)
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(f"{query} Q0 {document} 1 0.5 test\n" for query, document in lines))
        ours.add(_computed(path, dataset))
        as_they_come = (f"{query} Q0 {each} 1 {-n} test\n" for n, (query, each) in enumerate(lines))
        path.write_text("".join(as_they_come))
        controls.add(_computed(path, dataset))
    assert (len(ours), len(controls)) == (1, 2)


def _computed(path: Path, dataset: Dataset) -> str:
    """Here, without a database between."""
    assert dataset.current_qrels is not None
    scored = evaluate_run(store_run(path), dataset, dataset.current_qrels, lambda share: None)
    return digest(scored.per_query, scored.means)


def _elsewhere(path: Path, dataset: Dataset, measures: list[str], threads: int) -> str:
    """In a process of its own with so many threads."""
    assert dataset.current_qrels is not None
    names = ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    qrels = path_of(Area.QRELS, dataset.current_qrels.sha256)
    command = [sys.executable, "-c", _ELSEWHERE, str(path), str(qrels), *measures]
    environment = {**os.environ, **dict.fromkeys(names, str(threads))}
    done = subprocess.run(command, cwd=settings.BASE_DIR, env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()
