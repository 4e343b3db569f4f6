"""Intake of models, used by the page and the API.

Either everything is stored or nothing is. Cheap checks run first: the checkpoint is unpacked, validated, and rebuilt
only if the rest of the request is valid. Its row is written in the same transaction as the jobs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from django.conf import settings
from django.db import transaction
from django.db.models import QuerySet

from evaluation.checkpoints.description import SPARTA, CheckpointDescription, CheckpointKind
from evaluation.core.problems import ProblemCode
from evaluation.engines import ENGINES, EngineDescription, InvalidParameter, Parameter
from evaluation.engines import describe as describe_engine
from evaluation.engines.base import OWN_LENGTH_LIMIT
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Benchmark, Dataset, System, Team, User, architecture_choices
from leaderboard.systems.records import SystemFields
from submissions.accounts.permissions import Person, get_checkpoints, get_teams
from submissions.checkpoints import service as checkpoints
from submissions.checkpoints.hub import PinnedModel, parse_image, refuse_download
from submissions.checkpoints.service import CheckpointArchive
from submissions.core.errors import FileReport, Refused
from submissions.intake.checkpoints.readiness import (
    SANDBOX_UNAVAILABLE,
    readiness,
    refuse_beyond_quota,
    refuse_without_gpu,
)
from submissions.intake.checkpoints.runs import select_runs
from submissions.intake.files import UNKNOWN_DATASET, IncomingFile, refuse
from submissions.intake.rounds import Admission
from submissions.intake.submission import (
    SubmissionOptions,
    admit,
    refuse_repeat,
    store_submission,
    submitting_team,
    system_row,
)
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue.queue import log_line
from submissions.queue.workers import UNPROTECTED, reported_capabilities
from submissions.quotas.ledger import lock_quota, recording_refusals
from submissions.uploads.service import lock_for_reading

CONTAINERS_OFF = ProblemCode("containers_off", "This site does not run container images.",
    "Submit a checkpoint or a run.")  # fmt: skip
TEAM_RUNS_NO_CONTAINERS = ProblemCode(
    "team_runs_no_containers", "Your team is not approved for container images.", "Ask the operators to approve it.",
)  # fmt: skip
NO_ENGINE = ProblemCode(
    "no_engine", "The request names no engine to run the model.", "Name one of the listed engines.", "-F engine=dense",
)  # fmt: skip
UNKNOWN_ENGINE = ProblemCode("unknown_engine", "There is no engine of this name.", "Name one of those "
    "listed.")  # fmt: skip
INVALID_PARAMETERS = ProblemCode(
    "invalid_parameters", "The engine does not have this parameter, or does not accept its value.",
    "Use one of the values in the message.", "k1=0.9, b=0.4",
)  # fmt: skip
ARCHITECTURE_MISMATCH = ProblemCode("architecture_mismatch", "The system and the engine have different "
    "architectures.", "Choose an engine of the system's architecture, or submit for another system.")  # fmt: skip
NO_CHECKPOINT = ProblemCode(
    "no_checkpoint", "The engine needs a model, but none was sent.", "Upload an archive, or name a stored checkpoint.",
    "-F checkpoint=@model.zip",
)  # fmt: skip
CHECKPOINT_NOT_WANTED = ProblemCode(
    "checkpoint_not_wanted", "The engine does not use a model, but one was sent.",
    "Omit the model, or choose an engine that runs it.",
)  # fmt: skip
GPU_NOT_WANTED = ProblemCode("gpu_not_wanted", "A GPU was requested, but the engine cannot use one.",
    "Omit the device, or choose cpu.")  # fmt: skip
UNKNOWN_PROMPT_DATASET = ProblemCode(
    "unknown_prompt_dataset", "There are prompts for a dataset that the model does not run on.",
    "Name the dataset too, or omit its prompts.",
)  # fmt: skip
SEVERAL_MODELS = ProblemCode("several_models", "More than one model was sent.", "Upload, choose, or name only "
    "one.")  # fmt: skip
UNKNOWN_CHECKPOINT = ProblemCode(
    "unknown_checkpoint", "Your team has no such checkpoint.", "Choose one of those in the message.",
)  # fmt: skip
NUMBER_OF_RUNS = ProblemCode(
    "number_of_runs", "The engine needs a different number of input runs.", "Send as many as the message states.",
)  # fmt: skip
NO_DATASET = ProblemCode("no_dataset", "No dataset was chosen.", "Choose at least one, or a whole benchmark.")
DATASET_OR_BENCHMARK = ProblemCode("dataset_or_benchmark", "Both datasets and a benchmark were named.",
    "Name one or the other.")  # fmt: skip
EMPTY_BENCHMARK = ProblemCode(
    "empty_benchmark", "No benchmark of this name has a dataset that models can run on.",
    "Choose one of those in the message.",
)  # fmt: skip
NO_CORPUS = ProblemCode(
    "no_corpus", "The site does not have the dataset's documents, so models cannot run on it.",
    "Run the model yourself and submit the run file.",
)  # fmt: skip

#: Pooling methods that a request can choose for encoders whose files do not specify one.
POOLINGS = ("mean", "cls", "max", "sum", "lasttoken", SPARTA)
Device = Literal["auto", "cpu", "gpu"]
#: Maximum number of characters of prompts and other text parameters.
LONGEST_PROMPT = 1000


Model = CheckpointArchive | Checkpoint | PinnedModel


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """Request to run a model: an archive, a checkpoint of the team, or a model on the Hub or in a registry.

    `runs` are references as accepted by `select_runs`. Either `datasets` or `benchmark` selects the datasets. `prompts`
    overrides the prompts in `parameters`, by dataset slug and parameter. `local` requests are sent from this machine;
    only these may run models without a sandbox.
    """

    engine: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    prompts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    model: Model | None = None
    datasets: tuple[str, ...] = ()
    benchmark: str = ""
    runs: tuple[str, ...] = ()
    device: Device = "auto"
    local: bool = False


@dataclass(frozen=True, slots=True)
class _Plan:
    """A validated request, except for the checkpoint's content.

    `payloads` contains the payloads of the datasets' jobs.
    """

    engine: EngineDescription
    parameters: dict[str, Any]
    payloads: Mapping[Dataset, dict[str, Any]]
    queue: Job.Queue

    @property
    def datasets(self) -> list[Dataset]:
        return list(self.payloads)


def accept_model(
    submitter: User,
    system: System | SystemFields,
    request: ModelRequest,
    options: SubmissionOptions = SubmissionOptions(),  # noqa: B008  # frozen
) -> Submission:
    """Store a submission of a model, queue one job per dataset, and return the submission.

    Raises Refused, in which case nothing is stored, if models cannot run on this site, the request or checkpoint is
    invalid, or the round, quota, or an earlier submission prevents it.
    """
    site_readiness = readiness(submitter, local=request.local)
    if not site_readiness.ready:
        raise Refused.for_problem(SANDBOX_UNAVAILABLE, site_readiness.reason, site_readiness.remedy)
    team = submitting_team(submitter, system, options)
    plan = _validate_request(request, team, system, unprotected=site_readiness.unprotected)
    # Check before the slow reading of the checkpoint, and again under the lock.
    _admit(submitter, team, plan, options)
    model = request.model
    uploads = [model.upload] if isinstance(model, CheckpointArchive) and model.upload else []
    with lock_for_reading(uploads):
        with recording_refusals(submitter, plan.datasets):
            # Models on the Hub and images in registries are downloaded by a worker.
            stored_files, checkpoint, description = None, None, None
            if isinstance(model, CheckpointArchive):
                stored_files = checkpoints.store_files(team, model, checkpoint_kinds(plan.engine))
                description = stored_files.description
            elif isinstance(model, Checkpoint):
                checkpoint, description = model, checkpoints.describe(model)
            if description is not None:
                _complete_parameters(plan.engine, plan.parameters, description)
                for dataset, payload in plan.payloads.items():
                    if dataset_prompts := payload.get("parameters"):
                        prefix = f"prompts of {dataset.name}: "
                        _complete_parameters(plan.engine, {**plan.parameters, **dataset_prompts}, description, prefix)
        with transaction.atomic():
            team = lock_quota(submitter, team)
            admission = _admit(submitter, team, plan, options)
            submission = Submission(
                kind=Submission.Kind.MODEL,
                submitter=submitter,
                team=team,
                system=system_row(_complete_system(system, description, plan.parameters), team, options),
                engine=plan.engine.name,
                parameters=plan.parameters,
                checkpoint=checkpoints.record(stored_files, team, submitter) if stored_files else checkpoint,
                **options.columns(),
                **admission.columns(),
            )
            jobs = [_build_job(submission, dataset, plan, options.round_entry.tag) for dataset in plan.datasets]
            for job in jobs:
                refuse_repeat(job, submission)
            store_submission(submission, jobs, uploads)
    return submission


def _admit(submitter: User, team: Team, plan: _Plan, options: SubmissionOptions) -> Admission:
    """Return the admission to the round.

    Raises Refused if it has problems or the team exceeds its quota of model runs.
    """
    refuse_beyond_quota(team, len(plan.datasets))
    admission = admit(submitter, team, plan.datasets, options)
    refuse(admission.problems)
    return admission


def one_archive(files: Sequence[IncomingFile], pooling: str) -> CheckpointArchive | None:
    """Return the archive, if one was sent. Raises Refused for several."""
    if len(files) > 1:
        raise _several_models()
    return next((CheckpointArchive(file.name, file.path, pooling, file.sha256, file.upload) for file in files), None)


def chosen_model(
    person: User, archive: CheckpointArchive | None, checkpoint_id: str, names: Mapping[str, str]
) -> Model | None:
    """Return the request's model: the archive, the checkpoint with this id, the named model, or None.

    `names` contains `hub_model` with `hub_commit`, or `image`. Raises Refused for several models, for a checkpoint
    that does not belong to the user's teams, and for an invalid image name.
    """
    if sum(map(bool, (archive, checkpoint_id, names["hub_model"], names["image"]))) > 1:
        raise _several_models()
    if names["image"]:
        return parse_image(names["image"])
    if not checkpoint_id:
        return archive or (PinnedModel(names["hub_model"], names["hub_commit"]) if names["hub_model"] else None)
    row = get_checkpoints(person).filter(pk=parse_number(checkpoint_id) or 0).first()
    if row is None:
        team_checkpoints = ", ".join(f"{row.pk} ({row.file_name})" for row in get_checkpoints(person)[:20])
        message = f"Your team has no checkpoint {checkpoint_id[:40]}."
        raise Refused.for_problem(UNKNOWN_CHECKPOINT, message, f"It has: {team_checkpoints or 'none yet'}.")
    return row


def _several_models() -> Refused:
    hint = "Upload one, choose one, or name one on the Hub or in a registry."
    return Refused.for_problem(SEVERAL_MODELS, "More than one model was sent.", hint)


def find_engine(name: str) -> EngineDescription:
    """Return the engine with this name. Raises Refused if the name is empty or unknown."""
    if not name:
        raise Refused.for_problem(NO_ENGINE, "No engine was named.", f"Choose one of: {', '.join(ENGINES)}.")
    try:
        return describe_engine(name)
    except InvalidParameter as error:
        raise Refused.for_problem(UNKNOWN_ENGINE, str(error), "Choose one of these.") from error


def checkpoint_kinds(engine: EngineDescription) -> tuple[CheckpointKind, ...]:
    return tuple(CheckpointKind(kind) for kind in engine.checkpoints)


def _validate_request(request: ModelRequest, team: Team, system: System | SystemFields, *, unprotected: bool) -> _Plan:
    """Validate the request, except for the checkpoint's content, and return its parameters, job payloads, and queue.

    An automatic device becomes a GPU if the model can use one and a live worker offers one. `unprotected` models run
    without a sandbox. Raises Refused.
    """
    engine = find_engine(request.engine)
    if engine.runs_image:
        _refuse_image([team], unprotected=unprotected)
    _refuse_unsuitable(engine, request, system)
    parameters = _complete_parameters(engine, request.parameters)
    if request.device == "gpu":
        refuse_without_gpu(unprotected=unprotected)
    datasets = chosen_datasets(request.datasets, request.benchmark, engine)
    prompts = _differing_prompts(request.prompts, engine, parameters, datasets)
    common_payload: dict[str, Any] = {UNPROTECTED: True} if unprotected else {}
    if isinstance(request.model, PinnedModel):
        common_payload |= {"hub_name": request.model.name, "hub_commit": request.model.commit}
    payloads = {}
    for dataset in datasets:
        run_ids = [run.pk for run in select_runs(request.runs, dataset, team)]
        dataset_payload = {"parameters": prompts[dataset.slug]} if prompts.get(dataset.slug) else {}
        payloads[dataset] = {"run_ids": run_ids, **dataset_payload, **common_payload}
    if request.device == "auto":
        # Use a GPU if the model can and a live worker offers one.
        capabilities = reported_capabilities(queues=[Job.Queue.GPU]) if engine.needs_checkpoint else []
        has_gpu_worker = any(capability.will_run(unprotected=unprotected) for capability in capabilities)
        queue = Job.Queue.GPU if has_gpu_worker else Job.Queue.CPU
    else:
        queue = Job.Queue(request.device)
    return _Plan(engine, parameters, payloads, queue)


def check_model(person: Person, archive: CheckpointArchive, engine: EngineDescription | None) -> FileReport:
    """Return the report on an archive for the engine, or for all engines if it is None. Nothing is stored.

    Raises Refused, before an image is read, if the person may not submit images. Raises TooManyChecks.
    """
    if engine and engine.runs_image:
        _refuse_image(get_teams(person), unprotected=False)
    return checkpoints.check_checkpoint(archive, checkpoint_kinds(engine) if engine else ())


def _refuse_image(teams: Iterable[Team], *, unprotected: bool) -> None:
    """Raise Refused if the site cannot run container images in a sandbox, or no team is approved for them."""
    if not settings.CONTAINERS:
        hint = "Submit a checkpoint or a run. Operators enable images with CONTAINERS=1."
        raise Refused.for_problem(CONTAINERS_OFF, "This site does not run container images.", hint)
    if not any(team.runs_containers for team in teams):
        message = f"Approval for container images is missing for {', '.join(map(str, teams)) or 'your team'}."
        raise Refused.for_problem(TEAM_RUNS_NO_CONTAINERS, message, "Ask the operators of this site to approve it.")
    if unprotected:
        message = "Container images need a sandbox, but this site runs models without one (SANDBOX=none)."
        raise Refused.for_problem(SANDBOX_UNAVAILABLE, message, "The operator must set SANDBOX=auto.")


def _refuse_unsuitable(engine: EngineDescription, request: ModelRequest, system: System | SystemFields) -> None:
    """Raise Refused if the system, model, device, or number of runs does not match the engine."""
    if system.architecture != engine.architecture and not engine.any_architecture:
        labels = dict(architecture_choices())
        system_label, engine_label = labels[system.architecture], labels[engine.architecture]
        message = f"{system.name} is declared as “{system_label}”, but {engine.label} is “{engine_label}”."
        hint = "Choose an engine of the system's architecture, or submit for another system."
        raise Refused.for_problem(ARCHITECTURE_MISMATCH, message, hint)
    accepted_kinds, model = checkpoint_kinds(engine), request.model
    if accepted_kinds and model is None:
        message = f"{engine.label} needs a model, but none was sent."
        hint = f"Upload a checkpoint or choose a stored one: {checkpoints.name_kinds(accepted_kinds)}."
        raise Refused.for_problem(NO_CHECKPOINT, message, hint)
    if not accepted_kinds and model is not None:
        hint = "Omit the checkpoint, or choose an engine that runs it."
        raise Refused.for_problem(CHECKPOINT_NOT_WANTED, f"{engine.label} does not use a model.", hint)
    if isinstance(model, PinnedModel):
        if engine.runs_image != model.is_image:
            kind = CheckpointKind.CONTAINER if model.is_image else None
            raise checkpoints.wrong_kind(model.name, kind, accepted_kinds)
        refuse_download(model)
    if isinstance(model, Checkpoint) and checkpoints.describe(model).kinds.isdisjoint(accepted_kinds):
        raise checkpoints.wrong_kind(model.file_name, CheckpointKind(model.kind), accepted_kinds)
    if request.device == "gpu" and not engine.needs_checkpoint:
        message = f"{engine.label} does not use a model, so it cannot use a GPU."
        raise Refused.for_problem(GPU_NOT_WANTED, message, "Omit device, or send device=cpu.")
    (minimum, maximum), run_count = engine.runs, len(request.runs)
    if not minimum <= run_count <= maximum:
        number = f"{minimum}" if minimum == maximum else f"{minimum} to {maximum}"
        raise Refused.for_problem(
            NUMBER_OF_RUNS,
            f"{engine.label} needs {number if maximum else 'no'} run{'s' if maximum != 1 else ''}, but {run_count} "
            "were named.",
            "Name runs by submission id, or by the slug of a system that this site provides, such as bm25.",
        )


def _complete_parameters(
    engine: EngineDescription,
    parameters: Mapping[str, object],
    model: CheckpointDescription | None = None,
    prefix: str = "",
) -> dict[str, Any]:
    """Return all parameters of the engine, with defaults, checked against each other and the model, if given.

    Raises Refused, with the message prefixed by `prefix`, for an invalid parameter.
    """
    try:
        all_parameters = engine.complete(parameters)
        engine.check_parameters(all_parameters, model)
    except InvalidParameter as error:
        hint = "See the form or the API documentation for all parameters and their defaults."
        raise Refused.for_problem(INVALID_PARAMETERS, f"{prefix}{error}", hint) from error
    return all_parameters


def _differing_prompts(
    prompts_by_slug: Mapping[str, Mapping[str, object]],
    engine: EngineDescription,
    parameters: Mapping[str, Any],
    datasets: Sequence[Dataset],
) -> dict[str, dict[str, Any]]:
    """Return the prompts of each dataset that differ from the submission's `parameters`, by dataset slug and parameter.

    Raises Refused for a dataset that is not in the submission, and for parameters that are not valid prompts.
    """
    names = {dataset.slug: dataset.name for dataset in datasets}
    if unknown_slugs := sorted(set(prompts_by_slug).difference(names)):
        message = f"There are prompts for {', '.join(unknown_slugs)}, which the model does not run on."
        raise Refused.for_problem(UNKNOWN_PROMPT_DATASET, message, f"It runs on {', '.join(sorted(names))}.")
    prompt_names = [parameter.name for parameter in prompt_parameters(engine)]
    differing_prompts = {}
    for slug, values in prompts_by_slug.items():
        if unknown_names := sorted(set(values) - set(prompt_names)):
            message = f"prompts of {names[slug]}: {', '.join(unknown_names)} is not a prompt of {engine.name}."
            hint = f"Prompts that datasets can override: {', '.join(prompt_names) or 'none'}."
            raise Refused.for_problem(INVALID_PARAMETERS, message, hint)
        complete = _complete_parameters(engine, {**parameters, **values}, prefix=f"prompts of {names[slug]}: ")
        differing_prompts[slug] = {name: complete[name] for name in values if complete[name] != parameters[name]}
    return differing_prompts


def prompt_parameters(engine: EngineDescription) -> list[Parameter]:
    """Return the engine's prompts, which can be overridden per dataset."""
    return [parameter for parameter in engine.parameters if parameter.keeps_blanks]


def _complete_system(
    system: System | SystemFields, description: CheckpointDescription | None, parameters: Mapping[str, Any]
) -> System | SystemFields:
    """Return a new system's description with missing dimension, length, and parameter count filled from its checkpoint.

    Existing systems, and systems without a checkpoint, are returned unchanged.
    """
    if isinstance(system, System) or description is None:
        return system
    own_length = min(description.maximum_length, OWN_LENGTH_LIMIT) if description.maximum_length else None
    return replace(
        system,
        dimension=system.dimension or description.dimension,
        maximum_length=system.maximum_length or parameters.get("maximum_length") or own_length,
        parameter_count=system.parameter_count or description.parameters or None,
    )


def _build_job(submission: Submission, dataset: Dataset, plan: _Plan, run_tag: str) -> Job:
    """Build a job that runs the model on the dataset. The job is not stored."""
    file_name = submission.checkpoint.file_name if submission.checkpoint else ""
    file_phrase = f" of {file_name}" if file_name else ""
    message = f"Received: {plan.engine.label}{file_phrase} over {dataset}. Queued for a {plan.queue} worker."
    return Job(
        kind=Job.Kind.MODEL,
        queue=plan.queue,
        submission=submission,
        dataset=dataset,
        file_name=file_name,
        state=State.QUEUED,
        validated=True,
        payload={**plan.payloads[dataset], **({"run_tag": run_tag} if run_tag else {})},
        log=log_line(message),
    )


def datasets_with_content() -> QuerySet[Dataset]:
    """Return the datasets that accept submissions and have a version on this site."""
    return (
        Dataset.objects.open_for_runs()
        .exclude(current_version=None)
        .select_related("current_version", "current_qrels")
        .prefetch_related("current_version__files")
    )


def has_corpus(dataset: Dataset) -> bool:
    """Return whether the site has the dataset's documents, so that models can run on it."""
    version = dataset.current_version
    return not dataset.runs_only and version is not None and bool(version.corpus_sha256)


def benchmarks_for_models() -> list[Benchmark]:
    """Return the benchmarks with at least one dataset that models can run on."""
    runnable = [dataset.pk for dataset in datasets_with_content() if has_corpus(dataset)]
    return list(Benchmark.objects.filter(members__dataset__in=runnable).distinct())


def chosen_datasets(slugs: Sequence[str], benchmark: str, engine: EngineDescription) -> list[Dataset]:
    """Return the datasets with these slugs, or those of the benchmark that the engine can run on, without duplicates.

    Raises Refused if both or neither are named, a dataset is unknown or lacks the documents that the engine reads, or
    the benchmark has no suitable dataset.
    """
    if slugs and benchmark:
        hint = "Name individual datasets or one benchmark."
        raise Refused.for_problem(DATASET_OR_BENCHMARK, DATASET_OR_BENCHMARK.meaning, hint)
    if benchmark:
        members = datasets_with_content().filter(memberships__benchmark__slug=benchmark)
        ordered_members = members.order_by("memberships__position", "name")
        runnable = [dataset for dataset in ordered_members if has_corpus(dataset) or not engine.reads_corpus]
        if not runnable:
            suggestions = ", ".join(row.slug for row in benchmarks_for_models()) or "none yet"
            message = f"There is no benchmark “{benchmark}” with a dataset that {engine.label} can run on."
            raise Refused.for_problem(EMPTY_BENCHMARK, message, f"Suitable benchmarks: {suggestions}.")
        return runnable
    if not slugs:
        hint = "Choose at least one dataset or a benchmark."
        raise Refused.for_problem(NO_DATASET, "No dataset was chosen.", hint)
    by_slug = {dataset.slug: dataset for dataset in datasets_with_content().filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in by_slug:
            suggestions = ", ".join(dataset.slug for dataset in datasets_with_content()[:20] if has_corpus(dataset))
            message = f"There is no dataset “{slug}” that models can run on."
            raise Refused.for_problem(UNKNOWN_DATASET, message, f"Suitable datasets: {suggestions or 'none yet'}.")
        if engine.reads_corpus and not has_corpus(by_slug[slug]):
            message = f"The site does not have the documents of {by_slug[slug]}, so models cannot run on it."
            hint = "Run the model yourself and submit the run file, which this dataset accepts."
            raise Refused.for_problem(NO_CORPUS, message, hint)
    return [by_slug[slug] for slug in dict.fromkeys(slugs)]
