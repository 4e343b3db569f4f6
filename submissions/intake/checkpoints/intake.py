"""From a model to queued jobs: the one way in, used by the page and the API.

Either everything is stored or nothing is. What costs nothing is asked first: the checkpoint is unpacked, validated and
rebuilt only for a request that is right in everything else, and its row is written in the transaction of the jobs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
from submissions.accounts.permissions import checkpoints_of
from submissions.checkpoints import service as checkpoints
from submissions.checkpoints.hub import HubModel, refuse_hub
from submissions.checkpoints.service import CheckpointArchive
from submissions.core.errors import Refused
from submissions.intake.checkpoints.readiness import (
    SANDBOX_UNAVAILABLE,
    readiness,
    refuse_beyond_quota,
    refuse_without_gpu,
)
from submissions.intake.checkpoints.runs import runs_for
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

NO_ENGINE = ProblemCode("no_engine", "A model without the engine that is to run it.", "Name one of those listed.",
    "-F engine=dense")  # fmt: skip
UNKNOWN_ENGINE = ProblemCode("unknown_engine", "There is no engine of this name.", "Name one of those "
    "listed.")  # fmt: skip
INVALID_PARAMETERS = ProblemCode("invalid_parameters", "A parameter that the engine does not have, or a value that "
    "it does not take.", "The message says what it takes.", "k1=0.9, b=0.4")  # fmt: skip
ARCHITECTURE_MISMATCH = ProblemCode("architecture_mismatch", "The system is said to be of another architecture than "
    "the engine.", "Choose the engine of its architecture, or submit as another system.")  # fmt: skip
NO_CHECKPOINT = ProblemCode("no_checkpoint", "The engine runs a model, and none was given.", "Upload an archive, or "
    "name one sent before.", "-F checkpoint=@model.zip")  # fmt: skip
CHECKPOINT_NOT_WANTED = ProblemCode("checkpoint_not_wanted", "The engine runs no model, and one was given.",
    "Leave it out, or choose the engine that runs it.")  # fmt: skip
GPU_NOT_WANTED = ProblemCode("gpu_not_wanted", "A GPU was asked for, and the engine has no use for one.",
    "Leave the device out, or say cpu.")  # fmt: skip
UNKNOWN_PROMPT_DATASET = ProblemCode("unknown_prompt_dataset", "Prompts for a dataset that the model is not run on.",
    "Name the dataset too, or leave its prompts out.")  # fmt: skip
SEVERAL_MODELS = ProblemCode("several_models", "More than one model was given.", "Upload, choose or name "
    "one.")  # fmt: skip
UNKNOWN_CHECKPOINT = ProblemCode("unknown_checkpoint", "Your team has sent no such checkpoint.", "The message lists "
    "those that it has.")  # fmt: skip
NUMBER_OF_RUNS = ProblemCode("number_of_runs", "The engine takes fewer or more runs to build on.", "The message says "
    "how many.")  # fmt: skip
NO_DATASET = ProblemCode("no_dataset", "No dataset was chosen.", "Choose at least one, or a whole benchmark.")
DATASET_OR_BENCHMARK = ProblemCode("dataset_or_benchmark", "Datasets and a benchmark were both named.",
    "Name either.")  # fmt: skip
EMPTY_BENCHMARK = ProblemCode("empty_benchmark", "No benchmark of this name has a dataset that models can be run on.",
    "The message lists those that have one.")  # fmt: skip
NO_CORPUS = ProblemCode("no_corpus", "The dataset's documents are not kept here, so no model can be run over them.",
    "Run it yourself and submit the run file.")  # fmt: skip

#: What may be asked for where a plain encoder does not say how its tokens' outputs become one.
POOLINGS = ("mean", "cls", "max", "sum", "lasttoken", SPARTA)
Device = Literal["auto", "cpu", "gpu"]
#: Characters of a prompt, as of any other parameter that is a text.
LONGEST_PROMPT = 1000


Model = CheckpointArchive | Checkpoint | HubModel


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is to be run, and on what. `model` is an archive, a checkpoint of the team's, or a model on the hub.

    `runs` are references as `runs_for` takes them; the datasets are named one by one or by a benchmark. `prompts` are
    those of some datasets, by slug and by parameter, where they are not those of `parameters`. A request from this
    machine is `local`, which alone may run models without a sandbox.
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
    """A request of which everything but the checkpoint's content is known to be right.

    `payloads` are those of the datasets' jobs: what they need beside the columns of their submission.
    """

    engine: EngineDescription
    parameters: dict[str, Any]
    payloads: Mapping[Dataset, dict[str, Any]]
    queue: Job.Queue

    @property
    def datasets(self) -> list[Dataset]:
        """The datasets that the model is run on."""
        return list(self.payloads)


def accept_model(
    submitter: User,
    system: System | SystemFields,
    request: ModelRequest,
    options: SubmissionOptions = SubmissionOptions(),  # noqa: B008  # frozen
) -> Submission:
    """Store a submission and queue its jobs, one for each dataset. Raises Refused, and then nothing is stored."""
    ready = readiness(submitter, local=request.local)
    if not ready.ready:
        raise Refused.of(SANDBOX_UNAVAILABLE, ready.reason, ready.remedy)
    team = submitting_team(submitter, system, options)
    plan = _plan(request, team, system, unprotected=ready.unprotected)
    # Before the checkpoint is read, which takes long, and again when nobody else can take a place.
    _admit(submitter, team, plan, options)
    model = request.model
    uploads = [model.upload] if isinstance(model, CheckpointArchive) and model.upload else []
    with lock_for_reading(uploads):
        with recording_refusals(submitter, plan.datasets):
            # A worker fetches a model on the hub.
            kept, stored, known = None, None, None
            if isinstance(model, CheckpointArchive):
                kept = checkpoints.store_files(team, model, kinds_of(plan.engine))
                known = kept.description
            elif isinstance(model, Checkpoint):
                stored, known = model, checkpoints.describe(model)
            if known is not None:
                _complete(plan.engine, plan.parameters, known)
                for dataset, payload in plan.payloads.items():
                    if own := payload.get("parameters"):
                        where = f"prompts of {dataset.slug}: "
                        _complete(plan.engine, {**plan.parameters, **own}, known, where)
        with transaction.atomic():
            team = lock_quota(submitter, team)
            admission = _admit(submitter, team, plan, options)
            submission = Submission(
                kind=Submission.Kind.MODEL,
                submitter=submitter,
                team=team,
                system=system_row(_completed(system, known, plan.parameters), team, options),
                engine=plan.engine.name,
                parameters=plan.parameters,
                checkpoint=checkpoints.record(kept, team, submitter) if kept else stored,
                **options.columns(),
                **admission.columns(),
            )
            jobs = [_job(submission, dataset, plan, options.round_entry.tag) for dataset in plan.datasets]
            for job in jobs:
                refuse_repeat(job, submission)
            store_submission(submission, jobs, uploads)
    return submission


def _admit(submitter: User, team: Team, plan: _Plan, options: SubmissionOptions) -> Admission:
    refuse_beyond_quota(team, len(plan.datasets))
    admission = admit(submitter, team, plan.datasets, options)
    refuse(admission.problems)
    return admission


def one_archive(files: Sequence[IncomingFile], pooling: str) -> CheckpointArchive | None:
    """Return the archive that was sent, if any. Raises Refused where there are several."""
    if len(files) > 1:
        raise _several_models()
    return next(
        (CheckpointArchive(each.name, each.path, pooling, each.sha256, each.upload) for each in files), None
    )


def chosen_model(
    person: User, archive: CheckpointArchive | None, checkpoint_id: str, hub: HubModel | None
) -> Model | None:
    """Return the one model of a request. Raises Refused for several, and for a checkpoint of another team."""
    if sum(map(bool, (archive, checkpoint_id, hub))) > 1:
        raise _several_models()
    if not checkpoint_id:
        return archive or hub
    row = checkpoints_of(person).filter(pk=parse_number(checkpoint_id) or 0).first()
    if row is None:
        mine = ", ".join(f"{row.pk} ({row.file_name})" for row in checkpoints_of(person)[:20])
        message = f"Your team has no checkpoint {checkpoint_id[:40]}."
        raise Refused.of(UNKNOWN_CHECKPOINT, message, f"It has: {mine or 'none yet'}.")
    return row


def _several_models() -> Refused:
    hint = "Upload one, choose one, or name one on the hub."
    return Refused.of(SEVERAL_MODELS, "More than one model was given.", hint)


def engine_of(name: str) -> EngineDescription:
    """Return the engine that a request names. Raises Refused."""
    if not name:
        raise Refused.of(NO_ENGINE, "No engine was named.", f"Choose one of: {', '.join(ENGINES)}.")
    try:
        return describe_engine(name)
    except InvalidParameter as error:
        raise Refused.of(UNKNOWN_ENGINE, str(error), "Choose one of these.") from error


def kinds_of(engine: EngineDescription) -> tuple[CheckpointKind, ...]:
    """Return the kinds of checkpoint that the engine runs."""
    return tuple(CheckpointKind(kind) for kind in engine.checkpoints)


def _plan(request: ModelRequest, team: Team, system: System | SystemFields, *, unprotected: bool) -> _Plan:
    """Return the plan of a request. Raises Refused for anything wrong but the checkpoint's content."""
    engine = engine_of(request.engine)
    _refuse_unsuitable(engine, request, system)
    parameters = _complete(engine, request.parameters)
    if request.device == "gpu":
        refuse_without_gpu(unprotected=unprotected)
    datasets = chosen_datasets(request.datasets, request.benchmark, engine)
    prompts = _prompts(request.prompts, engine, parameters, datasets)
    shared: dict[str, Any] = {UNPROTECTED: True} if unprotected else {}
    if isinstance(request.model, HubModel):
        shared |= {"hub_name": request.model.name, "hub_commit": request.model.commit}
    payloads = {}
    for dataset in datasets:
        run_ids = [run.pk for run in runs_for(request.runs, dataset, team)]
        own = {"parameters": prompts[dataset.slug]} if prompts.get(dataset.slug) else {}
        payloads[dataset] = {"run_ids": run_ids, **own, **shared}
    if request.device == "auto":
        # A GPU where a model can use one and a worker that is alive runs models on it.
        able = reported_capabilities(queues=[Job.Queue.GPU]) if engine.needs_checkpoint else []
        gpu = any(each.will_run(unprotected=unprotected) for each in able)
        queue = Job.Queue.GPU if gpu else Job.Queue.CPU
    else:
        queue = Job.Queue(request.device)
    return _Plan(engine, parameters, payloads, queue)


def _refuse_unsuitable(
    engine: EngineDescription, request: ModelRequest, system: System | SystemFields
) -> None:
    """Raise Refused where the system, the model, the device, or the number of runs is not for the engine."""
    if system.architecture != engine.architecture:
        labels = dict(architecture_choices())
        is_now, would_be = labels[system.architecture], labels[engine.architecture]
        message = f"{system.name} is said to be “{is_now}”, and {engine.label} is “{would_be}”."
        hint = "Choose the engine of its architecture, or submit this as another system."
        raise Refused.of(ARCHITECTURE_MISMATCH, message, hint)
    wanted, model = kinds_of(engine), request.model
    if wanted and model is None:
        message = f"{engine.label} runs a model, and none was given."
        hint = f"Upload a checkpoint, or choose one sent before: {checkpoints.in_words(wanted)}."
        raise Refused.of(NO_CHECKPOINT, message, hint)
    if not wanted and model is not None:
        hint = "Leave the checkpoint out, or choose the engine that runs it."
        raise Refused.of(CHECKPOINT_NOT_WANTED, f"{engine.label} runs no model.", hint)
    if isinstance(model, HubModel):
        refuse_hub(model)
    if isinstance(model, Checkpoint) and checkpoints.describe(model).kinds.isdisjoint(wanted):
        raise checkpoints.wrong_kind(model.file_name, CheckpointKind(model.kind), wanted)
    if request.device == "gpu" and not engine.needs_checkpoint:
        message = f"{engine.label} runs no model, so that a GPU is of no use to it."
        raise Refused.of(GPU_NOT_WANTED, message, "Leave device out, or send device=cpu.")
    (least, most), given = engine.runs, len(request.runs)
    if not least <= given <= most:
        number = f"{least}" if least == most else f"{least} to {most}"
        raise Refused.of(
            NUMBER_OF_RUNS,
            f"{engine.label} takes {number if most else 'no'} run{'s' if most != 1 else ''}, and {given} were named.",
            "Name them by the submission's id, or by the address of one of the site's own systems, such as bm25.",
        )


def _complete(
    engine: EngineDescription,
    parameters: Mapping[str, object],
    model: CheckpointDescription | None = None,
    where: str = "",
) -> dict[str, Any]:
    """All of the engine's parameters, which go together, and with the model as far as it is known. Raises Refused."""
    try:
        complete = engine.complete(parameters)
        engine.check_parameters(complete, model)
    except InvalidParameter as error:
        hint = "The form and the API's documentation list every parameter with its default."
        raise Refused.of(INVALID_PARAMETERS, f"{where}{error}", hint) from error
    return complete


def _prompts(
    given: Mapping[str, Mapping[str, object]],
    engine: EngineDescription,
    parameters: Mapping[str, Any],
    datasets: Sequence[Dataset],
) -> dict[str, dict[str, Any]]:
    """Return the prompts of datasets that differ from the submission's, by slug. Raises Refused."""
    slugs = sorted(dataset.slug for dataset in datasets)
    if unknown := sorted(set(given).difference(slugs)):
        message = f"There are prompts for {', '.join(unknown)}, which the model is not run on."
        raise Refused.of(UNKNOWN_PROMPT_DATASET, message, f"It is run on {', '.join(slugs)}.")
    allowed = [parameter.name for parameter in prompt_parameters(engine)]
    found = {}
    for slug, values in given.items():
        if strange := sorted(set(values) - set(allowed)):
            message = f"prompts of {slug}: {', '.join(strange)} is no prompt of {engine.name}."
            hint = f"Datasets may differ in {', '.join(allowed) or 'nothing'}."
            raise Refused.of(INVALID_PARAMETERS, message, hint)
        complete = _complete(engine, {**parameters, **values}, where=f"prompts of {slug}: ")
        found[slug] = {name: complete[name] for name in values if complete[name] != parameters[name]}
    return found


def prompt_parameters(engine: EngineDescription) -> list[Parameter]:
    """Return the engine's prompts, which each dataset may have for itself."""
    return [parameter for parameter in engine.parameters if parameter.keeps_blanks]


def _completed(
    system: System | SystemFields, known: CheckpointDescription | None, parameters: Mapping[str, Any]
) -> System | SystemFields:
    """Return a new system's description, completed from its checkpoint."""
    if isinstance(system, System) or known is None:
        return system
    own_length = min(known.maximum_length, OWN_LENGTH_LIMIT) if known.maximum_length else None
    return replace(
        system,
        dimension=system.dimension or known.dimension,
        maximum_length=system.maximum_length or parameters.get("maximum_length") or own_length,
        parameter_count=system.parameter_count or known.parameters or None,
    )


def _job(submission: Submission, dataset: Dataset, plan: _Plan, run_tag: str) -> Job:
    file_name = submission.checkpoint.file_name if submission.checkpoint else ""
    named = f" of {file_name}" if file_name else ""
    received = f"Received: {plan.engine.label}{named} over {dataset}. Queued for a {plan.queue} worker."
    return Job(
        kind=Job.Kind.MODEL,
        queue=plan.queue,
        submission=submission,
        dataset=dataset,
        file_name=file_name,
        state=State.QUEUED,
        validated=True,
        payload={**plan.payloads[dataset], **({"run_tag": run_tag} if run_tag else {})},
        log=log_line(received),
    )


def datasets_with_content() -> QuerySet[Dataset]:
    """Return the datasets that take submissions and have content here, by name."""
    return (
        Dataset.objects.open_for_runs()
        .exclude(current_version=None)
        .select_related("current_version", "current_qrels")
        .prefetch_related("current_version__files")
    )


def has_corpus(dataset: Dataset) -> bool:
    """Whether the documents are kept here, so that something can be run over them."""
    version = dataset.current_version
    return not dataset.runs_only and version is not None and bool(version.corpus_sha256)


def benchmarks_for_models() -> list[Benchmark]:
    """Return the benchmarks with at least one dataset that models run on."""
    runnable = [dataset.pk for dataset in datasets_with_content() if has_corpus(dataset)]
    return list(Benchmark.objects.filter(members__dataset__in=runnable).distinct())


def chosen_datasets(slugs: Sequence[str], benchmark: str, engine: EngineDescription) -> list[Dataset]:
    """Return the chosen datasets, each once. Raises Refused where one is not known, or the engine cannot run on it.

    Of a benchmark, those that the engine can run on: not all of its members need to be here.
    """
    if slugs and benchmark:
        message, hint = (
            "Datasets and a benchmark were both named.",
            "Name datasets one by one, or one whole benchmark.",
        )
        raise Refused.of(DATASET_OR_BENCHMARK, message, hint)
    if benchmark:
        members = datasets_with_content().filter(memberships__benchmark__slug=benchmark)
        ordered = members.order_by("memberships__position", "name")
        runnable = [dataset for dataset in ordered if has_corpus(dataset) or not engine.reads_corpus]
        if not runnable:
            known = ", ".join(each.slug for each in benchmarks_for_models()) or "none yet"
            message = (
                f"There is no benchmark “{benchmark}” with a dataset that {engine.label} can be run on here."
            )
            raise Refused.of(EMPTY_BENCHMARK, message, f"Benchmarks that have one: {known}.")
        return runnable
    if not slugs:
        hint = "Choose at least one dataset, or one whole benchmark."
        raise Refused.of(NO_DATASET, "No dataset was chosen.", hint)
    by_slug = {dataset.slug: dataset for dataset in datasets_with_content().filter(slug__in=slugs)}
    for slug in slugs:
        if slug not in by_slug:
            known = ", ".join(each.slug for each in datasets_with_content()[:20] if has_corpus(each))
            message = f"There is no dataset “{slug}” that models can be run on."
            raise Refused.of(
                UNKNOWN_DATASET, message, f"Datasets that models are run on: {known or 'none yet'}."
            )
        if engine.reads_corpus and not has_corpus(by_slug[slug]):
            message = f"The documents of {by_slug[slug]} are not kept here, so no model can be run over them."
            hint = "Run the model yourself and submit the run file; this dataset takes those."
            raise Refused.of(NO_CORPUS, message, hint)
    return [by_slug[slug] for slug in dict.fromkeys(slugs)]
