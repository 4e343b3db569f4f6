"""What it costs to publish one result on a small board and on a large one: `python tests/benchmarks/publication.py`.

CPU milliseconds of one process (user and system) for `publish_entry` of a result that is scored already, on SQLite:
the entry, the board's new revision, the row that is stored, the news' facts and the requests for work that follow.
Boards take turns; medians are printed.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.benchmarks.board import MEASURES, prepare, publish  # noqa: E402
from tests.figures import Figures, add_option  # noqa: E402

#: How many rows the boards have, the small one first, and how much longer the large one may take.
SIZES, MOST = (10, 1000), 1.3


def make_board(rows: int) -> Any:
    """A dataset with so many results of as many teams' systems."""
    from leaderboard.models import Dataset, System, Team

    team = Team.objects.create(slug=f"team-{rows}", name=f"Team {rows}")
    systems = System.objects.bulk_create(
        System(slug=f"system-{rows}-{n}", name=f"System {n}", team=team, bibtex=f"@misc{{s{n}, title={{S {n}}}}}")
        for n in range(rows)
    )
    dataset = Dataset.objects.create(
        slug=f"dataset-{rows}", name=f"Dataset {rows}", state="published", hidden=False, measures=MEASURES
    )
    publish(dataset, systems)
    return dataset


def evaluation(dataset: Any, number: int) -> Any:
    """A new run of a new system, scored."""
    from leaderboard.models import Evaluation, Run, System, Team

    team = Team.objects.get(slug=dataset.slug.replace("dataset", "team"))
    system = System.objects.create(slug=f"new-{dataset.pk}-{number}", name=f"New {number}", team=team)
    version, qrels = dataset.current_version, dataset.current_qrels
    run = Run.objects.create(version=version, system=system, sha256=f"{dataset.pk}-{number}", origin="uploaded", size=1)
    means = {name: (number + place) % 97 / 97 for place, name in enumerate(MEASURES)}
    return Evaluation.objects.create(
        run=run, qrels=qrels, specification="1", measures=MEASURES, means=means, values=b"", judged_queries=1
    )


def cost(found: Any) -> float:
    """CPU milliseconds of its publication."""
    from leaderboard.models import Entry
    from leaderboard.results.publishing.scored import publish_entry

    gc.collect()
    begin = time.process_time()
    publish_entry(Entry(provenance=Entry.Provenance.SCORED, submission_reference="new"), found)
    return (time.process_time() - begin) * 1000


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=31)
    add_option(parser)
    options = parser.parse_args()
    figures = Figures(__file__)
    with ExitStack() as after, tempfile.TemporaryDirectory(prefix="runboard-publication-") as folder:
        prepare(folder, after)
        boards = {rows: make_board(rows) for rows in SIZES}
        times: dict[int, list[float]] = {rows: [] for rows in SIZES}
        for number in range(options.rounds + 1):
            for rows, dataset in boards.items():
                times[rows].append(cost(evaluation(dataset, number)))
    small, large = (statistics.median(times[rows][1:]) for rows in SIZES)
    bound = figures.bound("publishing one result", large / small, MOST, " × small")
    figures.say(f"CPU milliseconds, medians of {options.rounds} publications each.")
    figures.table(
        ["rows of the board", "CPU ms", "× small", "bound"],
        [
            [f"{SIZES[0]:,}", f"{small:.2f}", "", ""],
            [f"{SIZES[1]:,}", f"{large:.2f}", f"{large / small:.2f}", bound],
        ],
    )
    sys.exit(figures.finish(options.write))


if __name__ == "__main__":
    main()
