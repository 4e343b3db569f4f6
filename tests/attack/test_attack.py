"""The attack on hidden judgements: sixty submissions that read them off the scores.

The suite plays the first twenty through the site with all protections on, and all without a site over several splits
into parts; with no protection it is played against the collection itself. `make attack` plays all through the site with
each protection on and off. What many accounts gain is played in `test_campaign`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest
from django.utils import timezone
from numpy.typing import NDArray

from evaluation.judgements import splits as judged_parts
from leaderboard.core.audit import acting
from leaderboard.datasets.qrels import load_parts
from leaderboard.models import Dataset
from leaderboard.results import protection, values
from leaderboard.results.publishing import publication
from leaderboard.results.publishing.protection import request_change
from submissions.models import Flag
from submissions.queue.queue import create_requested_jobs
from tests.attack import board, offline
from tests.attack.board import FULL
from tests.attack.offline import ALL, EVERY, SUBMISSIONS, Protections
from tests.attack.prober import QUERIES, Prober, honest, synthetic_collection
from tests.attack.site import SLUG, Account, bring, run_text
from tests.factories import make_user
from tests.submissions.workers import work

#: Over how many splits the suite plays it; `make attack` takes more.
SPLITS = 12 if os.environ.get("RUNBOARD_ATTACK") else 6
#: Two a day, as the quota allows where it is not lifted.
PACE = timedelta(hours=12)


class Outcome(NamedTuple):
    """What the attack gained, in nDCG@10 over each part, and at which submission it was flagged first."""

    public: float
    private: float | None
    told: int
    flagged: int | None


#: `make attack` asks for every one of them.
PLAYED = EVERY if os.environ.get("RUNBOARD_ATTACK") else [ALL]
#: For how many submissions: twenty show that the site tells what is expected, and that it flags.
PLAYED_FOR = (
    [SUBMISSIONS] if os.environ.get("RUNBOARD_ATTACK") else [20, pytest.param(SUBMISSIONS, marks=pytest.mark.long)]
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[datetime]:
    """The time that the site believes in: the first item, for a test to set."""
    now = [datetime(2026, 3, 1, 9, tzinfo=UTC)]
    monkeypatch.setattr(timezone, "now", lambda: now[0])
    return now


@pytest.fixture(scope="module")
def table(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    """Rows that are printed in the end, where somebody asked for all of them."""
    rows = [
        "| protections | gained on what the board shows | on the private part | answers with a score | flagged at |",
        "|---|--:|--:|--:|--:|",
    ]
    yield rows
    if len(PLAYED) > 1:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            print("\n" + "\n".join(rows))


def play(
    protections: Protections,
    submissions: int,
    folder: Path,
    clock: list[datetime],
    monkeypatch: pytest.MonkeyPatch,
) -> Outcome:
    """So many submissions under these protections; without parts the whole collection is public.

    The secret that draws the parts is that of split 0, so that the outcome is always the same.
    """
    drawn = SimpleNamespace(token_bytes=lambda _: board.secret(0))
    monkeypatch.setattr(judged_parts, "secrets", drawn)
    if not protections.rounding:
        monkeypatch.setattr(values, "HIDDEN_DECIMALS", FULL)
        monkeypatch.setattr(protection, "PUBLIC_STEP", 0.0)
    if not protections.ladder:
        monkeypatch.setattr(publication, "is_significant", lambda *_: True)
    collection = synthetic_collection()
    dataset = bring(collection, folder)
    if protections.parts or protections.ladder:
        with acting(None, "the attack"):
            request_change(dataset, competition=True, share=protections.share)
        create_requested_jobs()
        work()
    public = public_part(Dataset.objects.get(slug=SLUG)) if protections.parts else np.ones(QUERIES, bool)
    account = Account(make_user("Mallory"))
    prober = Prober(collection.totals, int(public.sum()), precision=protections.rules.step)
    told = 0
    for _ in range(submissions - 1):
        score = account.submit(run_text(prober.next_run()))
        prober.learn(score)
        told += score is not None
        clock[0] += PACE
    account.submit(run_text(prober.final()))
    gain = collection.values(prober.final()) - collection.values(honest())
    flagged = Flag.objects.order_by("pk").values_list("submission", flat=True).first()
    return Outcome(
        public=float(gain[public].mean()),
        private=float(gain[~public].mean()) if protections.parts else None,
        told=told,
        flagged=account.submissions.index(flagged) + 1 if flagged else None,
    )


def public_part(dataset: Dataset) -> NDArray[np.bool_]:
    """Which of the collection's queries are public, shape (QUERIES,)."""
    assert dataset.current_qrels is not None
    parts = load_parts(dataset.current_qrels)
    return np.array([parts.public[f"q{query}"] for query in range(QUERIES)])


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("submissions", PLAYED_FOR)
@pytest.mark.parametrize("protections", PLAYED, ids=str)
def test_what_a_prober_gains(
    protections: Protections,
    submissions: int,
    tmp_path: Path,
    clock: list[datetime],
    monkeypatch: pytest.MonkeyPatch,
    table: list[str],
) -> None:
    outcome = play(protections, submissions, tmp_path, clock, monkeypatch)
    private = "–" if outcome.private is None else f"{outcome.private:+.4f}"
    table.append(
        f"| {protections} | {outcome.public:+.4f} | {private} | {outcome.told} of {submissions - 1} "
        f"| {outcome.flagged} |"
    )
    assert outcome.flagged is not None
    assert outcome.flagged <= 10
    assert outcome[:3] == pytest.approx(offline.play(protections, submissions=submissions), abs=1e-9), (
        "the site tells more, or less"
    )


def test_all_protections_leave_a_prober_a_quarter_of_its_gain_at_most_whatever_the_split() -> None:
    everything = offline.play(Protections(False, False, False)).public
    assert everything > 0.03, "the prober does not know how: the test proves nothing"
    played = [offline.play(ALL, split) for split in range(SPLITS)]
    assert np.mean([each.public for each in played]) <= everything / 4
    assert np.mean([each.private for each in played]) <= 0.002
