"""No curator without the right to read judgements is told unrecorded whether a hidden pair is judged."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin
from django.db.models import Model
from django.urls import reverse

from leaderboard.datasets.qrels import load_qrels
from leaderboard.models import Dataset, JudgementImport
from tests.leaks.flows import ELSEWHERE, FLOWS, Flow, acts, standard_flows, standard_names
from tests.leaks.worlds import Played, Stage, Worlds, make_worlds

pytestmark = pytest.mark.django_db

#: Played on every run of the tests; all others are marked long.
SHORT = (
    "leaderboard_dataset_import", "leaderboard_dataset_import, twin", "leaderboard_judgementimport_bring",
    "leaderboard_judgementimport_bring, to the page",
    "leaderboard_pool_draw, the page", "leaderboard_rescore_csv", "import_judgements",
)  # fmt: skip


def test_every_act_of_the_admin_and_every_command_is_walked() -> None:
    walked = {name.partition(",")[0] for name in FLOWS} | standard_names() | ELSEWHERE
    assert acts() - walked == set(), "say in tests/leaks/flows.py how a curator would try out a pair there"
    assert not ({name.partition(",")[0] for name in FLOWS} | ELSEWHERE) - acts()


@pytest.mark.long
def test_no_act_tells_unrecorded_whether_a_pair_is_judged(tmp_path: Path) -> None:
    worlds = make_worlds(tmp_path)
    secrets = differing(worlds)
    assert JudgementImport in {model for model, _, _ in secrets}  # its counts, at least
    flows = {**FLOWS, **{f"filtered by {address}": asked(address) for address in filters(secrets)}}
    with worlds.world(worlds.judged) as stage:
        flows |= dict(standard_flows(stage, short=False))
    assert not tellers(worlds.play(flows))


def test_few_acts_tell_nothing_and_planted_ones_are_found(tmp_path: Path) -> None:
    worlds = make_worlds(tmp_path, whole=False)
    flows = {**{name: FLOWS[name] for name in SHORT}, "reads": _reads, "tells": _tells}
    with worlds.world(worlds.judged) as stage:
        flows |= dict(standard_flows(stage, short=True))
    played = worlds.play(flows)
    found = tellers(played)
    assert set(found) == {"reads", "tells"}, found
    assert found["reads"] == "it opens hidden judgements"
    assert "'new': 0" in found["tells"]
    assert played["leaderboard_rescore_csv"][0].recorded


def _reads(stage: Stage) -> None:
    qrels = Dataset.objects.get(pk=stage.dataset.pk).current_qrels
    assert qrels is not None
    load_qrels(qrels)


def _tells(stage: Stage) -> None:
    stage.told.append(str(JudgementImport.objects.get(pk=stage.brought.pk).counts))


def tellers(played: Mapping[str, tuple[Played, Played]]) -> dict[str, str]:
    """The acts that tell the worlds apart, and how."""
    return {name: told for name, both in played.items() if (told := oracle(*both))}


def oracle(judged: Played, unjudged: Played) -> str:
    """How the act tells the two worlds apart without a record; empty where it does not."""
    if judged.recorded and unjudged.recorded:
        return ""
    if judged.told != unjudged.told:
        lines = difflib.unified_diff(judged.told.splitlines(), unjudged.told.splitlines(), lineterm="", n=0)
        return "\n".join(list(lines)[2:12])
    return "it opens hidden judgements" if judged.opened or unjudged.opened else ""


def asked(address: str) -> Flow:
    """The act of asking for an address."""

    def ask(stage: Stage) -> None:
        stage.get(address)

    return ask


def differing(worlds: Worlds) -> set[tuple[type[Model], str, str]]:
    """What of the admin's rows tells the worlds apart: models, columns (parts of JSON as lookups), and values."""
    rows = []
    for key in (worlds.judged, worlds.unjudged):
        with worlds.world(key):
            rows.append(
                {
                    (model, row.pk, name): str(value)
                    for model in admin.site._registry
                    for row in model._default_manager.all()
                    for name, value in _columns(row)
                }
            )
    first, second = rows
    return {
        (model, name, value) for (model, pk, name), value in first.items() if second.get((model, pk, name)) != value
    }


def _columns(row: Model) -> Iterator[tuple[str, Any]]:
    for field in row._meta.concrete_fields:
        value = getattr(row, field.attname)
        if isinstance(value, Mapping):
            yield from ((f"{field.name}__{name}", each) for name, each in value.items())
        elif "_at" not in field.name and field.name not in ("at", "last_login"):
            yield field.name, value


def filters(secrets: set[tuple[type[Model], str, str]]) -> Iterator[str]:
    """Addresses of lists that ask for rows with these values."""
    for model, name, value in sorted(secrets, key=str):
        address = reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_changelist")
        yield f"{address}?{name}={value}"
        yield f"{address}?{name}__startswith={value[:2]}"
