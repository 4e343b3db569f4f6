"""Provenance of a system's runs, and recipes to reproduce its results."""

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
from leaderboard.results.reported_facts import read_amount

#: Runs of public entries, both single runs and seed sets.
_PUBLIC = EntryQuerySet(Entry).public()
_PUBLIC_RUN = Q(evaluations__entry__in=_PUBLIC) | Q(evaluations__seed__entry__in=_PUBLIC)


def self_reported_costs(system_id: int) -> list[dict[str, Any]]:
    """Return the costs in the headers of the system's public runs, ordered by dataset, in one query.

    Runs without a valid token count or cost are omitted. Values that a run does not report are None: `tokens`,
    `cost_usd` of the whole run, and `per_1000_queries` in US dollars.
    """
    rows = (
        Run.objects.filter(_PUBLIC_RUN, system_id=system_id, metadata__resources__self_reported="true")
        .order_by("version__dataset__name", "pk")
        .distinct()
        .values_list("version__dataset__name", "metadata")
    )
    costs = []
    for dataset, metadata in rows:
        resources = metadata["resources"]
        tokens, cost, per_1000_queries = (
            read_amount(resources.get(name)) for name in ("tokens", "cost_usd", "cost_usd_per_1000_queries")
        )
        if tokens is not None or per_1000_queries is not None:
            count = None if tokens is None else int(tokens)
            costs.append({"dataset": dataset, "tokens": count, "cost_usd": cost, "per_1000_queries": per_1000_queries})
    return costs


def run_provenance(system_id: int) -> list[dict[str, Any]]:
    """Return the distinct configurations with which Runboard ran the system publicly, in three queries.

    Each has its `engine`, `parameters`, and `datasets`. `checkpoint` is empty for runs without a model. `credits` are
    the systems whose runs were re-ranked or fused. Both are empty while the system is anonymous.
    """
    runs = (
        Run.objects.filter(_PUBLIC_RUN, system_id=system_id)
        .exclude(metadata={})
        .select_related("version__dataset")
        .order_by("version__dataset__name", "pk")
        .distinct()
    )
    recorded_runs = [run for run in runs if "made_by" in run.metadata]
    sources = _credits([run.pk for run in recorded_runs])
    is_anonymous = System.objects.filter(anonymity.anonymous_now(), pk=system_id).exists()
    configurations: list[dict[str, Any]] = []
    for run in recorded_runs:
        record = run.metadata["made_by"]
        engine = record.get("engine", "")
        configuration = {
            "engine": ENGINES[engine].label if engine in ENGINES else engine,
            "parameters": [(name, parameter_text(value)) for name, value in record.get("parameters", {}).items()],
            # The checkpoint or the input runs could identify the team of an anonymous system.
            "checkpoint": {} if is_anonymous else record.get("checkpoint", {}),
            "credits": [] if is_anonymous else sources.get(run.pk, []),
        }
        name = run.version.dataset.name
        matches = (candidate for candidate in configurations if configuration.items() <= candidate.items())
        match = next(matches, None)
        if match is None:
            configurations.append({**configuration, "datasets": [name]})
        elif name not in match["datasets"]:
            match["datasets"].append(name)
    return configurations


def parameter_text(value: object) -> str:
    """Return a parameter value as requests write it; text with leading, trailing, or repeated blanks is quoted."""
    if isinstance(value, str) and value != " ".join(value.split()):
        return json.dumps(value, ensure_ascii=False)
    return str(value).lower() if isinstance(value, bool) else str(value)


def _credits(runs: list[int]) -> dict[int, list[dict[str, str]]]:
    """Return, by run, the systems whose public runs it was built from, without anonymous ones."""
    rows = (
        Run.objects.filter(_PUBLIC_RUN, used_by__in=runs)
        .exclude(anonymity.anonymous_now("system__"))
        .order_by("system__name")
        .values_list("used_by", "system__slug", "system__name")
        .distinct()
    )
    credits_by_run: dict[int, list[dict[str, str]]] = {}
    for run, slug, name in rows:
        credits_by_run.setdefault(run, []).append({"slug": slug, "name": name})
    return credits_by_run


Kind = DatasetFile.Kind
#: Number of documents per query that Runboard's workers retrieve.
DEPTH = 1000
#: Dataset files that a reproduction needs.
_REQUIRED_KINDS = (Kind.CORPUS, Kind.QUERIES, Kind.QRELS)
_REPORTED = "The result is reported in a publication; Runboard did not run the system."
_HIDDEN = "The judgments are hidden, so only Runboard can compute the scores."
_SEALED = "The queries or the documents of the dataset are not public."
_UPLOADED = "The run was uploaded, and the public data is not enough to reproduce it. Ask its team."
_ANONYMOUS = "The system is anonymous for now, and its model would identify it."
_STALE = "The content of the dataset has changed since."
_FROM_RUNS = "The run starts from stored runs, which belong to their teams."
_UNKNOWN = "The configuration of the run was not recorded."


@dataclass(frozen=True, slots=True)
class Recipe:
    """Inputs and parameters to reproduce one result.

    If there is a `reason` why this is impossible, all other fields are empty.

    `checkpoint` contains the SHA-256 checksums of the rebuilt model and its files, and its source: a name and commit
    on the Hugging Face hub, a file of the dataset, or the digest of a container `image` and the `port` of its server.
    The SHA-256 checksum of an image is that of its configuration. `run_sha256` is the checksum of the run's text, and
    `files` are those of the input files by kind.
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


def list_recipes(system_id: int) -> list[Recipe]:
    """Return a recipe, or the reason why there is none, for each public result of a system."""
    entries = (
        Entry.objects.public()
        .filter(system_id=system_id)
        .prefetch_related("dataset__current_version__files")
        .select_related("system", "dataset__current_version", "evaluation__run__version", "evaluation__qrels")
        .order_by("dataset__name", "published_at", "pk")
    )
    return [_recipe(entry) for entry in entries]


def _recipe(entry: Entry) -> Recipe:
    """Return the recipe of a public result, or only the reason why others cannot reproduce it."""
    dataset, evaluation = entry.dataset, entry.evaluation
    if evaluation is None:
        return Recipe(dataset.slug, entry.configuration, _REPORTED)
    run = evaluation.run
    qrels_name = judgements_name(evaluation.qrels.split)
    required_kinds = (*_REQUIRED_KINDS, Kind.EXCLUDED) if run.version.excluded_sha256 else _REQUIRED_KINDS
    files = {
        file.kind: file
        for file in offered_files(dataset, AnonymousUser())
        if file.kind != Kind.QRELS or file.name == qrels_name
    }
    engine, parameters, checkpoint = _run_configuration(entry, run)
    reasons = (
        (entry.provenance == Entry.Provenance.REPORTED, _REPORTED),
        (entry.dataset.hidden, _HIDDEN),
        (run.version_id != entry.dataset.current_version_id, _STALE),
        (not (set(required_kinds) <= files.keys()), _SEALED),
        (run.origin == Run.Origin.UPLOADED, _UPLOADED),
        (entry.system.anonymous_until is not None, _ANONYMOUS),
    )
    reason = next((reason for applies, reason in reasons if applies), "") or ("" if engine in ENGINES else _UNKNOWN)
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
        files={str(kind): files[kind].sha256 for kind in required_kinds},
        scores=evaluation.means,
    )


def _run_configuration(entry: Entry, run: Run) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Return the run's engine, parameters, and checkpoint, as recorded.

    For older runs without a record, they come from the site's own system; for those of teams they are empty.
    """
    record = run.metadata.get("made_by")
    if record:
        checkpoint = record.get("checkpoint") or {}
        names = ("sha256", "files", "hub_name", "hub_commit", "image", "port")
        return (
            record["engine"],
            record["parameters"],
            {name: checkpoint[name] for name in names if checkpoint.get(name)},
        )
    parameters = entry.system.parameters or {}
    engine = str(parameters.get("engine", "")) if entry.system.team_id is None else ""
    engine_parameters = {parameter.name for parameter in ENGINES[engine].parameters} if engine in ENGINES else set()
    return engine, {name: value for name, value in parameters.items() if name in engine_parameters}, {}
