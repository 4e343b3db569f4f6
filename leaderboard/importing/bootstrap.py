"""Initial data of a new site: reported boards, the demo collection with its rows and model, and a curator account.

All functions can be called repeatedly; existing data does not change.
"""

import secrets
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from allauth.account.models import EmailAddress
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from leaderboard.importing.collections.halves import SUFFIX, import_twin
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.demo.stdlib_search import DEMO_SLUG, DESCRIPTION, NAME, QUERIES, VERSION, build_stdlib_search
from leaderboard.importing.reported.loader import load_reported
from leaderboard.importing.topics.renewal import add_batch
from leaderboard.models import Dataset, Entry, Source, TopicSource, User
from leaderboard.results.board_rows.revisions import record_present
from leaderboard.results.publishing.descriptions import refresh_training
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.values import datasets_without_shares
from leaderboard.systems.baselines import BM25, request_demo_rows, request_sample_model

CURATOR = "curator@runboard.localhost"
_DEMO = ImportOptions(
    slug=DEMO_SLUG,
    name=NAME,
    task="Code search",
    domain="Software",
    licence="PSF-2.0",
    homepage="https://docs.python.org/3/library/",
    judged_by="construction from docstrings",
    description=f"{DESCRIPTION} Half of the questions are hidden; comparing the two boards shows overfitting to the "
    "public half. This is only an example: anyone with the same Python version can derive the answers.",
    version_label=VERSION,
)


def prepare(is_outdated: Callable[[], bool]) -> None:
    """Create the initial data of the site: curator account, reported boards, and the demo collection with its twin.

    If the database `is_outdated`, this builds the demo collection while another process migrates the database. Requests
    the demo's rows and sample model, records missing board rows, and refreshes training exposure and scores without
    judgment coverage.
    """
    demos = Dataset.objects.filter(slug=DEMO_SLUG, current_version__isnull=False)
    with tempfile.TemporaryDirectory(dir=settings.FILE_UPLOAD_TEMP_DIR) as folder:
        if may_lack_demo := is_outdated() or not demos.exists():
            build_stdlib_search(Path(folder), queries=2 * QUERIES)
        while is_outdated():
            time.sleep(0.5)
        make_curator()
        load_reported()
        refresh_training()
        record_present()
        for dataset in datasets_without_shares():
            refresh_scores(dataset)
        # This comes last, because workers then time the demo's systems, and nothing else should run.
        if may_lack_demo and not demos.exists():
            demo, hidden_half = import_twin(Path(folder), _DEMO, 0.5, seed=0)
            request_demo_rows(demo.dataset)
            request_demo_rows(hidden_half.dataset)
            request_sample_model(demo.dataset)
    _add_demo_source()


def _add_demo_source() -> None:
    """Make the demo collection a rolling benchmark, whose open half is batch 1 and whose hidden half is batch 2."""
    halves = Dataset.objects.in_bulk([DEMO_SLUG, DEMO_SLUG + SUFFIX], field_name="slug")
    if len(halves) == 2 and not TopicSource.objects.filter(slug=DEMO_SLUG).exists():
        with transaction.atomic():
            generator = TopicSource.Generator.STDLIB
            source = TopicSource(slug=DEMO_SLUG, name=NAME, generator=generator, dataset=halves[DEMO_SLUG])
            source.next_at = timezone.now() + timedelta(days=source.interval_days)
            source.save()
            for number, slug in enumerate((DEMO_SLUG, DEMO_SLUG + SUFFIX), 1):
                add_batch(source, number, halves[slug])


def is_ready() -> bool:
    """Return whether the reported boards are loaded and the demo's BM25 row is published."""
    demo = Entry.objects.filter(dataset__slug=DEMO_SLUG, system__slug=BM25.slug, is_baseline=True)
    return Source.objects.exists() and demo.exists()


def password_file() -> Path:
    """Return the path of the demo curator's password, which only its owner can read."""
    return Path(settings.VAR) / "demo-curator-password"


@transaction.atomic
def make_curator() -> None:
    """Create a superuser for the one-command default installation, unless any account exists."""
    if not settings.EMBEDDED or User.objects.exists():
        return
    password = secrets.token_urlsafe(12)
    password_file().touch(0o600)
    password_file().write_text(f"{password}\n")
    curator = User.objects.create_superuser(CURATOR, password, name="Demo curator")
    EmailAddress.objects.create(user=curator, email=CURATOR, verified=True, primary=True)
