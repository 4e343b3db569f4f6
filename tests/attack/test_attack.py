"""The attack on hidden judgements: sixty submissions that read them off the scores.

The suite plays it through the site with all protections on; with none it is played against the collection itself.
`make attack` plays it through the site with each protection on and off, and prints the table that docs/benchmarks.md
keeps.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from django.utils import timezone
from numpy.typing import NDArray

from leaderboard.audit import acting
from leaderboard.judgements import load_parts
from leaderboard.models import Dataset
from leaderboard.protection.changing import request_change
from leaderboard.publishing import scored, values
from submissions.models import Flag
from submissions.queue import take_requests
from tests.attack.prober import QUERIES, Prober, honest, synthetic_collection
from tests.attack.site import SLUG, Account, bring
from tests.factories import make_user
from tests.submissions.conftest import work

pytestmark = pytest.mark.django_db(transaction=True)

SUBMISSIONS = 60
#: Two a day, as the quota allows where it is not lifted.
PACE = timedelta(hours=12)
FULL = 15


@dataclass(frozen=True)
class Protections:
    """Which are on."""

    rounding: bool
    parts: bool
    ladder: bool

    def __str__(self) -> str:
        named = [name for name in ("rounding", "parts", "ladder") if getattr(self, name)]
        return ", ".join(named) or "none"


class Outcome(NamedTuple):
    """What the attack gained, in nDCG@10 over each part, and at which submission it was flagged first."""

    public: float
    private: float | None
    told: int
    flagged: int | None


ALL = Protections(True, True, True)
#: `make attack` asks for every one of them.
PLAYED = (
    [Protections(*on) for on in itertools.product([False, True], repeat=3)]
    if os.environ.get("RUNBOARD_ATTACK")
    else [ALL]
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


def unprotected() -> float:
    """What the attack gains where every score is told in full: no site, only the collection."""
    collection = synthetic_collection()
    prober = Prober(collection.totals, QUERIES, precision=0.0)
    for _ in range(SUBMISSIONS - 1):
        prober.learn(float(collection.values(prober.next_run()).mean()))
    return float((collection.values(prober.final()) - collection.values(honest())).mean())


def play(
    protections: Protections, folder: Path, clock: list[datetime], monkeypatch: pytest.MonkeyPatch
) -> Outcome:
    """Sixty submissions under these protections; without parts the whole collection is public."""
    if not protections.rounding:
        monkeypatch.setattr(values, "HIDDEN_DECIMALS", FULL)
    if not protections.ladder:
        monkeypatch.setattr(scored, "is_significant", lambda *_: True)
    collection = synthetic_collection()
    dataset = bring(collection, folder)
    if protections.parts or protections.ladder:
        with acting(None, "the attack"):
            # The Ladder comes with parts: without these the private one is as small as may be.
            request_change(dataset, competition=True, share=1 / 3 if protections.parts else 0.995)
        take_requests()
        work()
    public = public_part(Dataset.objects.get(slug=SLUG)) if protections.parts else np.ones(QUERIES, bool)
    account = Account(make_user("Mallory"))
    prober = Prober(collection.totals, int(public.sum()), precision=0.001 if protections.rounding else 0.0)
    told = 0
    for _ in range(SUBMISSIONS - 1):
        score = account.submit(prober.next_run())
        prober.learn(score)
        told += score is not None
        clock[0] += PACE
    account.submit(prober.final())
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


@pytest.mark.parametrize("protections", PLAYED, ids=str)
def test_what_a_prober_gains(
    protections: Protections,
    tmp_path: Path,
    clock: list[datetime],
    monkeypatch: pytest.MonkeyPatch,
    table: list[str],
) -> None:
    everything = unprotected()
    assert everything > 0.03, "the prober does not know how: the test proves nothing"
    outcome = play(protections, tmp_path, clock, monkeypatch)
    private = "–" if outcome.private is None else f"{outcome.private:+.4f}"
    table.append(
        f"| {protections} | {outcome.public:+.4f} | {private} | {outcome.told} of {SUBMISSIONS - 1} "
        f"| {outcome.flagged} |"
    )
    assert outcome.flagged is not None
    assert outcome.flagged <= 10
    if protections == ALL:
        assert outcome.public <= everything / 4
        assert outcome.private is not None
        assert outcome.private <= 0.002
