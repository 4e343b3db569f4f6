"""What a system's runs were made with, and how each result is made again, or why nobody else can."""

import json
from dataclasses import dataclass, field
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.db.models import Q

from evaluation.engines import ENGINES
from leaderboard import VERSION
from leaderboard.core import anonymity
from leaderboard.datasets.files import judgements_name, offered_files
from leaderboard.models import DatasetFile, Entry, EntryQuerySet, Run, System

#: Runs of public entries, be they single ones or of a seed set.
_PUBLIC = EntryQuerySet(Entry).public()
_SHOWN = Q(evaluations__entry__in=_PUBLIC) | Q(evaluations__seed__entry__in=_PUBLIC)


#: Tokens or dollars that no run takes.
_GREATEST = 1e15


def self_reported_costs(system_id: int) -> list[dict[str, Any]]:
    """Return what the headers of the system's public runs say of tokens and cost, by dataset. One query.

    `cost_usd` is None if a run does not state it.
    """
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
            found.append({"dataset": dataset, "tokens": int(tokens), "cost_usd": cost})
    return found


def _number(text: object) -> float | None:
    """A number that a header states, 0 or more; None for all else that may stand there."""
    try:
        number = float(str(text))
    except ValueError:
        return None
    return number if 0 <= number < _GREATEST else None


def run_provenance(system_id: int) -> list[dict[str, Any]]:
    """Return every way in which the system's public runs were made here, each once. Three queries.

    `checkpoint` is empty where no model was run; `credits` are the systems whose runs were re-ranked or fused.
    """
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
    found: list[dict[str, Any]] = []
    for run in made:
        told = run.metadata["made_by"]
        engine = told.get("engine", "")
        one = {
            "engine": ENGINES[engine].label if engine in ENGINES else engine,
            "parameters": [
                (name, parameter_text(value)) for name, value in told.get("parameters", {}).items()
            ],
            # An anonymous system's checkpoint may be known elsewhere, and other runs are mostly the team's own.
            "checkpoint": {} if kept_back else told.get("checkpoint", {}),
            "credits": [] if kept_back else sources.get(run.pk, []),
        }
        name, known = (
            run.version.dataset.name,
            next((each for each in found if one.items() <= each.items()), None),
        )
        if known is None:
            found.append({**one, "datasets": [name]})
        elif name not in known["datasets"]:
            known["datasets"].append(name)
    return found


def parameter_text(value: object) -> str:
    """A parameter's value as requests write it; a text whose blanks would not be seen stands in quotes."""
    if isinstance(value, str) and value != " ".join(value.split()):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _credits(runs: list[int]) -> dict[int, list[dict[str, str]]]:
    """Of each run, the systems whose runs it was built on, as far as they are public."""
    rows = (
        Run.objects.filter(_SHOWN, used_by__in=runs)
        .exclude(anonymity.anonymous_now("system__"))
        .order_by("system__name")
        .values_list("used_by", "system__slug", "system__name")
        .distinct()
    )
    found: dict[int, list[dict[str, str]]] = {}
    for run, slug, name in rows:
        found.setdefault(run, []).append({"slug": slug, "name": name})
    return found


Kind = DatasetFile.Kind
#: How many documents a query workers of the site search for.
DEPTH = 1000
#: The files of the dataset that a result follows from.
_READ = (Kind.CORPUS, Kind.QUERIES, Kind.QRELS)
_REPORTED = "It is reported from a publication, and was not made here."
_HIDDEN = "The judgements are hidden, so nobody else can compute its scores."
_SEALED = "The queries or the documents of the dataset are not public."
_UPLOADED = "The run was uploaded, and what is public of it does not make it again: ask its team."
_ANONYMOUS = "The system is anonymous for now, and its model would name it."
_STALE = "The dataset has had other content since."
_FROM_RUNS = "It starts from stored runs, which are their teams'."
_UNKNOWN = "What made it was not noted when it was made."


@dataclass(frozen=True, slots=True)
class Recipe:
    """What one result was made of. Where `reason` is said it cannot be made again, and what follows is empty.

    `checkpoint` has the sha256 of the rebuilt model and of each of its files, and where to have it: a name and commit
    on the hub, or a file of the dataset. `run_sha256` is of the run's text, `files` the checksums of what is read, by
    kind.
    """

    dataset: str
    configuration: str
    reason: str = ""
    engine: str = ""
    parameters: dict[str, Any] = field(default_factory=dict)
    checkpoint: dict[str, Any] = field(default_factory=dict)
    language: str = ""
    drop_self_matches: bool = False
    depth: int = 0
    tag: str = ""
    run_sha256: str = ""
    files: dict[str, str] = field(default_factory=dict)
    scores: dict[str, float] = field(default_factory=dict)
    software: str = VERSION


def recipes_of(system_id: int) -> list[Recipe]:
    """A recipe, or why there is none, for each public result of a system."""
    entries = (
        Entry.objects.public()
        .filter(system_id=system_id)
        .prefetch_related("dataset__current_version__files")
        .select_related("system", "dataset__current_version", "evaluation__run__version", "evaluation__qrels")
        .order_by("dataset__name", "published_at", "pk")
    )
    return [_recipe(entry) for entry in entries]


def _recipe(entry: Entry) -> Recipe:
    dataset, evaluation = entry.dataset, entry.evaluation
    if evaluation is None:
        return Recipe(dataset.slug, entry.configuration, _REPORTED)
    run = evaluation.run
    scored = judgements_name(evaluation.qrels.split)
    read = (*_READ, Kind.EXCLUDED) if run.version.excluded_sha256 else _READ
    files = {
        file.kind: file
        for file in offered_files(dataset, AnonymousUser())
        if file.kind != Kind.QRELS or file.name == scored
    }
    engine, parameters, checkpoint = _made_by(entry, run)
    reasons = (
        (entry.provenance == Entry.Provenance.REPORTED, _REPORTED),
        (entry.dataset.hidden, _HIDDEN),
        (run.version_id != entry.dataset.current_version_id, _STALE),
        (not (set(read) <= files.keys()), _SEALED),
        (run.origin == Run.Origin.UPLOADED, _UPLOADED),
        (entry.system.anonymous_until is not None, _ANONYMOUS),
    )
    reason = next((reason for holds, reason in reasons if holds), "") or (
        "" if engine in ENGINES else _UNKNOWN
    )
    if not reason and ENGINES[engine].runs[1] and run.built_from.exists():
        reason = _FROM_RUNS
    if reason:
        return Recipe(dataset.slug, entry.configuration, reason)
    description = ENGINES[engine]
    if description.needs_checkpoint and entry.system.team_id is None and Kind.EXAMPLE_MODEL in files:
        checkpoint = {**checkpoint, "file": files[Kind.EXAMPLE_MODEL].name}
    return Recipe(
        dataset.slug,
        entry.configuration,
        engine=engine,
        parameters=description.complete(parameters),
        checkpoint=checkpoint,
        language=dataset.language,
        drop_self_matches=dataset.drop_self_matches,
        depth=DEPTH,
        tag=run.tag,
        run_sha256=run.sha256,
        files={str(kind): files[kind].sha256 for kind in read},
        scores=evaluation.means,
    )


def _made_by(entry: Entry, run: Run) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """The engine, its parameters, and the checkpoint; of the site's own systems as their rows say."""
    made = run.metadata.get("made_by")
    if made:
        known = made.get("checkpoint") or {}
        wanted = ("sha256", "files", "hub_name", "hub_commit")
        return made["engine"], made["parameters"], {name: known[name] for name in wanted if known.get(name)}
    said = entry.system.parameters or {}
    engine = str(said.get("engine", "")) if entry.system.team_id is None else ""
    own = {parameter.name for parameter in ENGINES[engine].parameters} if engine in ENGINES else set()
    return engine, {name: value for name, value in said.items() if name in own}, {}
