"""What a system's runs were made with, where they were made here: engine, parameters, model, and the runs built on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from django.db.models import Q

from evaluation.engines import ENGINES
from leaderboard.core import anonymity
from leaderboard.models import Entry, Run, System
from leaderboard.models.results import EntryQuerySet

#: Runs of public entries, be they single ones or of a seed set.
_PUBLIC = EntryQuerySet(Entry).public()
_SHOWN = Q(evaluations__entry__in=_PUBLIC) | Q(evaluations__seed__entry__in=_PUBLIC)


#: Tokens or dollars that no run takes.
_GREATEST = 1e15


class SystemCredit(NamedTuple):
    """A system whose run was re-ranked or fused."""

    slug: str
    name: str


class RunProvenance(NamedTuple):
    """One way in which the system's runs were made; `checkpoint` is empty where no model was run."""

    engine: str
    parameters: list[tuple[str, str]]
    checkpoint: Mapping[str, Any]
    credits: list[SystemCredit]
    datasets: list[str]


class SelfReportedCost(NamedTuple):
    """What a run says that an interface took for it; `cost_usd` is None where it does not say."""

    dataset: str
    tokens: int
    cost_usd: float | None


def self_reported_costs(system_id: int) -> list[SelfReportedCost]:
    """What the headers of the system's public runs say of tokens and cost, by datasets. One query."""
    rows = (
        Run.objects.filter(_SHOWN, system_id=system_id, metadata__resources__self_reported="true")
        .order_by("version__dataset__name", "pk")
        .distinct()
        .values_list("version__dataset__name", "metadata")
    )
    found = []
    for dataset, metadata in rows:
        told = metadata["resources"]
        tokens, cost = _number(told.get("tokens")), _number(told.get("cost_usd"))
        if tokens is not None:
            found.append(SelfReportedCost(dataset, int(tokens), cost))
    return found


def _number(text: object) -> float | None:
    """A number that a header states, 0 or more; None for all else that may stand there."""
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if 0 <= number < _GREATEST else None


def run_provenance(system_id: int) -> list[RunProvenance]:
    """Every way in which the system's public runs were made here, each once. Three queries."""
    runs = (
        Run.objects.filter(_SHOWN, system_id=system_id)
        .exclude(metadata={})
        .select_related("version__dataset")
        .order_by("version__dataset__name", "pk")
        .distinct()
    )
    made = [run for run in runs if "made_by" in run.metadata]
    sources = _credits([run.pk for run in made])
    kept_back = System.objects.filter(anonymity.anonymous_now(), pk=system_id).exists()
    found: list[RunProvenance] = []
    for run in made:
        one = _provenance(run.metadata["made_by"], sources.get(run.pk, []))
        if kept_back:  # a checkpoint may be known elsewhere, and other runs are mostly the team's own
            one = one._replace(checkpoint={}, credits=[])
        known = next((each for each in found if each[:4] == one[:4]), one)
        if known is one:
            found.append(one)
        if run.version.dataset.name not in known.datasets:
            known.datasets.append(run.version.dataset.name)
    return found


def _provenance(told: Mapping[str, Any], credits: list[SystemCredit]) -> RunProvenance:
    engine = told.get("engine", "")
    label = ENGINES[engine].label if engine in ENGINES else engine
    parameters = [(name, parameter_text(value)) for name, value in told.get("parameters", {}).items()]
    return RunProvenance(label, parameters, told.get("checkpoint", {}), credits, [])


def parameter_text(value: object) -> str:
    """A parameter's value as requests write it; a text whose blanks would not be seen stands in quotes."""
    if isinstance(value, str) and value != " ".join(value.split()):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _credits(runs: list[int]) -> dict[int, list[SystemCredit]]:
    """Of each run, the systems whose runs it was built on, as far as they are public."""
    rows = (
        Run.objects.filter(_SHOWN, used_by__in=runs)
        .exclude(anonymity.anonymous_now("system__"))
        .order_by("system__name")
        .values_list("used_by", "system__slug", "system__name")
        .distinct()
    )
    found: dict[int, list[SystemCredit]] = {}
    for run, slug, name in rows:
        found.setdefault(run, []).append(SystemCredit(slug, name))
    return found
