"""What the site has before anybody reads: the demo, the reported boards, a generated board, a dataset for large runs.

Django is set up, and the site's processes run: what has to be computed is asked for and waited for.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from django.conf import settings

from tests.load import runs

#: Of the generated board; a system page and a comparison for each of so many systems.
SYSTEMS, DATASETS = 300, 12
PATIENCE = 120.0
LARGEST_SITEMAP = 60


def fill(folder: Path, systems: int = SYSTEMS, datasets: int = DATASETS) -> None:
    """Make everything that needs no worker, and ask workers for the rest; the generated board has so many rows."""
    from leaderboard.importing.collections.importer import import_dataset
    from leaderboard.importing.collections.source import ImportOptions
    from leaderboard.importing.demo.stdlib_search import DEMO_SLUG, build_stdlib_search
    from leaderboard.importing.reported.loader import load_reported
    from leaderboard.results.board_rows.revisions import record_present
    from leaderboard.systems.baselines import request_demo_rows
    from tests.generated.board import generate_board

    load_reported()
    record_present()
    generate_board(systems, datasets)
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR) as made:
        demo = ImportOptions(slug=DEMO_SLUG, name="StdlibSearch", hidden=False)
        request_demo_rows(import_dataset(build_stdlib_search(Path(made)), demo).dataset)
    runs.write_collection(folder)
    options = ImportOptions(slug=runs.DATASET, name="Load", task="search", hidden=False, runs_only=True)
    import_dataset(folder, options)


def tokens(people: int, name: str) -> list[str]:
    """A token to submit with for each of so many new people."""
    from leaderboard.models import User
    from submissions.accounts.access import make_token
    from submissions.accounts.teams import personal_team
    from submissions.models import Scope

    found = []
    for number in range(people):
        person = User.objects.create_user(f"{name}-{number}@runboard.localhost")
        personal_team(person)
        found.append(make_token(person, "load test", scopes=[Scope.SUBMIT, Scope.READ]))
    return found


def wait_for(condition: Callable[[], bool], patience: float = PATIENCE) -> bool:
    """Whether it held within so many seconds; returns once it does."""
    deadline = time.monotonic() + patience
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.25)
    return True


def work_is_done() -> bool:
    """Whether every job, and every request for one, has come to its end."""
    from leaderboard.models import WorkRequest
    from submissions.models import TERMINAL, Job

    waiting = Job.objects.exclude(state__in=TERMINAL).exists()
    return not waiting and not WorkRequest.objects.filter(taken_at=None).exists()


def under_way(identifiers: list[str]) -> bool:
    """Whether a job of these submissions has not come to its end."""
    from submissions.models import TERMINAL, Job

    return Job.objects.filter(submission__in=identifiers).exclude(state__in=TERMINAL).exists()


def states(identifiers: list[str]) -> dict[str, int]:
    """How many jobs of these submissions are in which state."""
    from collections import Counter

    from submissions.models import Job

    return dict(Counter(Job.objects.filter(submission__in=identifiers).values_list("state", flat=True)))


def sitemap() -> tuple[dict[str, list[str]], list[str]]:
    """Addresses by kind of page, and the systems that are compared."""
    from leaderboard.figures.registry import FIGURES
    from leaderboard.models import Benchmark, Dataset, Entry, System
    from leaderboard.models.results import EntryQuerySet

    shown = System.objects.filter(entries__in=EntryQuerySet(Entry).seen()).distinct().order_by("pk")
    systems = list(shown.values_list("slug", flat=True))
    some = systems[:: max(1, len(systems) // LARGEST_SITEMAP)]
    datasets = Dataset.objects.filter(entries__in=EntryQuerySet(Entry).seen()).distinct().order_by("pk")
    addresses = {
        "home": ["/"],
        "list": ["/benchmarks/", "/datasets/", "/news/", "/figures/", "/rounds/"],
        "benchmark board": [f"/benchmarks/{slug}/" for slug in Benchmark.objects.values_list("slug", flat=True)],
        "dataset board": [f"/datasets/{slug}/" for slug in datasets.values_list("slug", flat=True)],
        "system": [f"/systems/{slug}/" for slug in some],
        "figure": [f"/figures/{slug}/" for slug in FIGURES],
        "document": ["/measures/", "/formats/", "/efficiency/", "/api/v1/docs/"],
    }
    return addresses, some
