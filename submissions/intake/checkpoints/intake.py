"""From a model to queued jobs: the one way in, used by the page and the API.

Either everything is stored or nothing is. What costs nothing is asked first: the checkpoint is unpacked, validated and
rebuilt only for a request that is right in everything else, and its row is written in the transaction of the jobs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any, Literal

from django.db import transaction

from evaluation.checkpoints.description import SPARTA, CheckpointDescription, CheckpointKind
from evaluation.core.problems import ProblemCode
from evaluation.engines import ENGINES, EngineDescription, InvalidParameter, Parameter
from evaluation.engines import describe as describe_engine
from evaluation.engines.base import OWN_LENGTH_LIMIT
from leaderboard.models import Dataset, Run, System, Team, User, architecture_choices
from leaderboard.systems.records import SystemFields
from submissions.accounts.agreements import refuse_unaccepted
from submissions.checkpoints import service as checkpoints
from submissions.checkpoints.hub import HubModel, refuse_hub
from submissions.checkpoints.service import CheckpointArchive, StoredFiles
from submissions.core.errors import ALREADY_SUBMITTED, LABEL_NEEDED, Refused
from submissions.intake.checkpoints.datasets import chosen_datasets
from submissions.intake.checkpoints.readiness import refuse_beyond_quota, refuse_unready, refuse_without_gpu
from submissions.intake.checkpoints.runs import runs_for
from submissions.intake.files import IncomingFile
from submissions.intake.rounds import NO_ROUND_ENTRY, RoundEntry, admit_to_round
from submissions.intake.runs import expected_team, system_row
from submissions.models import Checkpoint, Job, State, Submission
from submissions.queue import queue
from submissions.queue.capability import UNPROTECTED, reported_capabilities
from submissions.queue.lifecycle import log_line
from submissions.quotas.ledger import charge, lock_quota, recording_refusals, refuse_unapproved
from submissions.uploads.service import consume_uploads, lock_for_reading

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
NUMBER_OF_RUNS = ProblemCode("number_of_runs", "The engine takes fewer or more runs to build on.", "The message says "
    "how many.")  # fmt: skip

#: What may be asked for where a plain encoder does not say how its tokens' outputs become one.
POOLINGS = ("mean", "cls", "max", "sum", "lasttoken", SPARTA)
Device = Literal["auto", "cpu", "gpu"]
#: Characters of a prompt, as of any other parameter that is a text.
LONGEST_PROMPT = 1000


Model = CheckpointArchive | Checkpoint | HubModel


@dataclass(frozen=True, slots=True)
class ModelRequest:
    """What is to be run, and on what. `model` is an archive, a checkpoint of the team's, or a model on the hub.

    `runs` are references as `model_runs` takes them; the datasets are named one by one or by a benchmark. `prompts` are
    those of some datasets, by slug and by parameter, where they are not those of `parameters`.
    """

    engine: str
    parameters: Mapping[str, object] = field(default_factory=dict)
    prompts: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    model: Model | None = None
    datasets: tuple[str, ...] = ()
    benchmark: str = ""
    runs: tuple[str, ...] = ()
    device: Device = "auto"


@dataclass(frozen=True, slots=True)
class _Plan:
    """A request of which everything but the checkpoint's content is known to be right."""

    engine: EngineDescription
    parameters: dict[str, Any]
    #: By dataset, those alone that are not in `parameters`.
    prompts: Mapping[int, dict[str, Any]]
    datasets: Sequence[Dataset]
    runs: Mapping[int, Sequence[Run]]
    device: Device
    hub: HubModel | None
    unprotected: bool

    def payload(self, dataset: Dataset) -> dict[str, Any]:
        """What the dataset's job is told beside what its submission says."""
        told: dict[str, Any] = {"run_ids": [run.pk for run in self.runs[dataset.pk]]}
        if prompts := self.prompts.get(dataset.pk):
            told["parameters"] = prompts
        return {**told, "hub_name": self.hub.name, "hub_commit": self.hub.commit} if self.hub else told


def accept_model(
    *,
    submitter: User,
    system: System | SystemFields,
    request: ModelRequest,
    local: bool = False,
    configuration: str = "",
    public: bool = True,
    reusable: bool = False,
    note: str = "",
    team: Team | None = None,
    anonymous_until: date | None = None,
    round_entry: RoundEntry = NO_ROUND_ENTRY,
) -> Submission:
    """Store a submission and queue its jobs, one for each dataset. Raises Refused, and then nothing is stored.

    `team` and `anonymous_until` are for a new system, as `accept_submission` has them.
    `local`: the request comes from this machine, which alone may run models without a sandbox.
    """
    ready = refuse_unready(submitter, local=local)
    team = expected_team(submitter, system, team)
    plan = _plan(request, team, system, unprotected=ready.unprotected)
    refuse_unapproved(team, plan.datasets)
    refuse_unaccepted(submitter, plan.datasets)
    refuse_beyond_quota(team, len(plan.datasets))
    admission = admit_to_round(submitter, team, plan.datasets, round_entry, ())
    with lock_for_reading(uploads := _uploads(request.model)):
        with recording_refusals(submitter, plan.datasets):
            kept = _keep_files(request.model, plan.engine, team)
            _refuse_unfit(plan, kept)
        with transaction.atomic():
            team = lock_quota(submitter, team)
            refuse_beyond_quota(team, len(plan.datasets))
            # Once more: the places of a round are counted now that nobody else can take one.
            admission = admit_to_round(submitter, team, plan.datasets, round_entry, ())
            submission = Submission(
                kind=Submission.Kind.MODEL,
                submitter=submitter,
                team=team,
                system=system_row(_completed(system, kept, plan.parameters), team, anonymous_until),
                configuration=configuration,
                engine=plan.engine.name,
                parameters=plan.parameters,
                checkpoint=checkpoints.record(kept, team=team, person=submitter)
                if isinstance(kept, StoredFiles)
                else kept,
                public=public,
                reusable=reusable,
                note=note,
                **admission.columns(),
            )
            for dataset in plan.datasets:
                _refuse_repeat(submission, dataset, plan)
            submission.save()
            for dataset in plan.datasets:
                _create_job(submission, dataset, plan, admission.entry.tag)
            consume_uploads(submitter, uploads)
            refuse_unaccepted(submitter, plan.datasets)  # once more: a new version may have come meanwhile
            charge(submission, plan.datasets)
    return submission


def _uploads(model: Model | None) -> list[str]:
    """The upload that brought the checkpoint in pieces, if one did."""
    return [model.upload] if isinstance(model, CheckpointArchive) and model.upload else []


def archive_in(file: IncomingFile, pooling: str) -> CheckpointArchive:
    """A file as the intake of models takes it."""
    return CheckpointArchive(file.name, file.path, pooling, file.sha256, file.upload)


def engine_of(name: str) -> EngineDescription:
    """The engine that a request names. Raises Refused."""
    if not name:
        raise Refused.of(NO_ENGINE, "No engine was named.", f"Choose one of: {', '.join(ENGINES)}.")
    try:
        return describe_engine(name)
    except InvalidParameter as error:
        raise Refused.of(UNKNOWN_ENGINE, str(error), "Choose one of these.") from error


def kinds_of(engine: EngineDescription) -> tuple[CheckpointKind, ...]:
    """The kinds of checkpoint that the engine runs."""
    return tuple(CheckpointKind(kind) for kind in engine.checkpoints)


def _plan(request: ModelRequest, team: Team, system: System | SystemFields, *, unprotected: bool) -> _Plan:
    """The request in the domain's words. Raises Refused for anything wrong but the checkpoint's content."""
    engine = engine_of(request.engine)
    _refuse_other_architecture(engine, system)
    parameters = _complete(engine, request.parameters)
    _refuse_wrong_model(engine, request.model)
    if request.device == "gpu" and not engine.needs_checkpoint:
        message = f"{engine.label} runs no model, so that a GPU is of no use to it."
        raise Refused.of(GPU_NOT_WANTED, message, "Leave device out, or send device=cpu.")
    if request.device == "gpu":
        refuse_without_gpu(unprotected=unprotected)
    datasets = chosen_datasets(request.datasets, request.benchmark, engine)
    _refuse_wrong_number_of_runs(engine, len(request.runs))
    runs = {dataset.pk: runs_for(request.runs, dataset, team) for dataset in datasets}
    hub = request.model if isinstance(request.model, HubModel) else None
    prompts = _prompts(request.prompts, engine, parameters, datasets)
    return _Plan(engine, dict(parameters), prompts, datasets, runs, request.device, hub, unprotected)


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
) -> dict[int, dict[str, Any]]:
    """What datasets have otherwise than the submission, by their keys. Raises Refused."""
    by_slug = {dataset.slug: dataset for dataset in datasets}
    if unknown := sorted(set(given) - set(by_slug)):
        message = f"There are prompts for {', '.join(unknown)}, which the model is not run on."
        raise Refused.of(UNKNOWN_PROMPT_DATASET, message, f"It is run on {', '.join(sorted(by_slug))}.")
    allowed = [parameter.name for parameter in prompt_parameters(engine)]
    found = {}
    for slug, values in given.items():
        if strange := sorted(set(values) - set(allowed)):
            message = f"prompts of {slug}: {', '.join(strange)} is no prompt of {engine.name}."
            hint = f"Datasets may differ in {', '.join(allowed) or 'nothing'}."
            raise Refused.of(INVALID_PARAMETERS, message, hint)
        complete = _complete(engine, {**parameters, **values}, where=f"prompts of {slug}: ")
        found[by_slug[slug].pk] = {
            name: complete[name] for name in values if complete[name] != parameters[name]
        }
    return found


def prompt_parameters(engine: EngineDescription) -> list[Parameter]:
    """The engine's parameters that are put before texts, which each dataset may have for itself."""
    return [parameter for parameter in engine.parameters if parameter.keeps_blanks]


def _refuse_unfit(plan: _Plan, kept: StoredFiles | Checkpoint | None) -> None:
    """Raises Refused where parameters do not go with the checkpoint, once that is known."""
    if kept is None:
        return
    model = _description(kept)
    _complete(plan.engine, plan.parameters, model)
    for dataset in plan.datasets:
        if own := plan.prompts.get(dataset.pk):
            _complete(plan.engine, {**plan.parameters, **own}, model, f"prompts of {dataset.slug}: ")


def _description(kept: StoredFiles | Checkpoint) -> CheckpointDescription:
    return kept.description if isinstance(kept, StoredFiles) else checkpoints.describe(kept)


def _refuse_other_architecture(engine: EngineDescription, system: System | SystemFields) -> None:
    if system.architecture != engine.architecture:
        labels = dict(architecture_choices())
        is_now, would_be = labels[system.architecture], labels[engine.architecture]
        raise Refused.of(
            ARCHITECTURE_MISMATCH,
            f"{system.name} is said to be “{is_now}”, and {engine.label} is “{would_be}”.",
            "Choose the engine of its architecture, or submit this as another system.",
        )


def _refuse_wrong_model(engine: EngineDescription, model: Model | None) -> None:
    wanted = kinds_of(engine)
    if wanted and model is None:
        raise Refused.of(
            NO_CHECKPOINT,
            f"{engine.label} runs a model, and none was given.",
            f"Upload a checkpoint, or choose one sent before: {checkpoints.in_words(wanted)}.",
        )
    if not wanted and model is not None:
        raise Refused.of(
            CHECKPOINT_NOT_WANTED,
            f"{engine.label} runs no model.",
            "Leave the checkpoint out, or choose the engine that runs it.",
        )
    if isinstance(model, HubModel):
        refuse_hub(model)
    if isinstance(model, Checkpoint) and checkpoints.describe(model).kinds.isdisjoint(wanted):
        raise checkpoints.wrong_kind(model.file_name, CheckpointKind(model.kind), wanted)


def _refuse_wrong_number_of_runs(engine: EngineDescription, given: int) -> None:
    least, most = engine.runs
    if least <= given <= most:
        return
    wanted = f"{least}" if least == most else f"{least} to {most}"
    raise Refused.of(
        NUMBER_OF_RUNS,
        f"{engine.label} takes {wanted if most else 'no'} run{'s' if most != 1 else ''}, and {given} were named.",
        "Name them by the submission's id, or by the address of one of the site's own systems, such as bm25.",
    )


def _keep_files(
    model: Model | None, engine: EngineDescription, team: Team
) -> StoredFiles | Checkpoint | None:
    """The checkpoint, its files in their place. Of one on the hub there is none yet: a worker fetches it."""
    if isinstance(model, CheckpointArchive):
        return checkpoints.store_files(team, model, kinds_of(engine))
    return model if isinstance(model, Checkpoint) else None


def _length_read(model: CheckpointDescription, parameters: Mapping[str, Any]) -> int | None:
    """Tokens that are read of a text: as many as is asked for, else the model's own up to the usual limit."""
    own = min(model.maximum_length, OWN_LENGTH_LIMIT) if model.maximum_length else None
    return parameters.get("maximum_length") or own


def _completed(
    system: System | SystemFields, kept: StoredFiles | Checkpoint | None, parameters: Mapping[str, Any]
) -> System | SystemFields:
    """What a new system says of itself, with what its checkpoint says where it was silent."""
    if isinstance(system, System) or kept is None:
        return system
    known = _description(kept)
    return replace(
        system,
        dimension=system.dimension or known.dimension,
        maximum_length=system.maximum_length or _length_read(known, parameters),
        parameter_count=system.parameter_count or known.parameters or None,
    )


def _refuse_repeat(submission: Submission, dataset: Dataset, plan: _Plan) -> None:
    """Raises Refused where this could not be told from a result of the team's on this dataset, under the same label.

    That is the same model run in the same way, or the same system with another engine or other parameters.
    """
    earlier = (
        Job.objects.blocking_resubmission()
        .filter(
            kind=Job.Kind.MODEL,
            dataset=dataset,
            submission__team=submission.team,
            submission__configuration=submission.configuration,
        )
        .select_related("submission__checkpoint", "submission__system", "dataset")
    )
    payload = plan.payload(dataset)
    for job in earlier:
        if job.submission is None:
            continue
        if others := _differences(job, submission, payload.get("parameters", {})):
            if job.submission.system == submission.system and job.submission.withdrawn_at is None:
                raise _needs_label(job, job.submission, others)
            continue
        # Of one on the hub the payload says which it is; it has a checkpoint only once it was fetched.
        same_model = plan.hub is not None or _model_of(job.submission) == _model_of(submission)
        if same_model and {**job.payload, **payload} == job.payload:
            raise _repeated(job, job.submission)


def _differences(earlier: Job, submission: Submission, own: Mapping[str, Any]) -> dict[str, object]:
    """How this one is run otherwise than the earlier one: by another engine, or the parameters with their values.

    `own` are those of the dataset alone.
    """
    if earlier.submission and earlier.submission.engine != submission.engine:
        return {"engine": submission.engine}
    now, before = {**submission.parameters, **own}, earlier.model_parameters
    return {name: value for name, value in now.items() if name not in before or before[name] != value}


def _needs_label(job: Job, earlier: Submission, others: Mapping[str, object]) -> Refused:
    """The refusal of a second way to run a system that a board could not tell from the first."""
    label = f"the label “{earlier.configuration}”" if earlier.configuration else "no label"
    shown = ", ".join(f"{name} {value}" for name, value in list(others.items())[:2])[:60]
    return Refused.of(
        LABEL_NEEDED,
        f"{earlier.system.name} has a result on {job.dataset} with {label} already, from another "
        f"{', '.join(others)}: the board could not tell the two apart.",
        f"Label this one, for example “{shown}” (configuration=…), or withdraw {earlier.get_absolute_url()} first.",
    )


def _model_of(submission: Submission) -> str:
    return submission.checkpoint.model_sha256 if submission.checkpoint else ""


def _repeated(job: Job, earlier: Submission) -> Refused:
    return Refused.of(
        ALREADY_SUBMITTED,
        f"{earlier.system.name} has had this model run on {job.dataset} with these parameters already: it came with "
        f"submission {earlier.pk} of {job.created_at:%-d %B %Y}.",
        f"See {earlier.get_absolute_url()}. If it is another seed or configuration, label it.",
    )


def _create_job(submission: Submission, dataset: Dataset, plan: _Plan, run_tag: str) -> None:
    queue_name = _queue(plan)
    named = f" of {submission.checkpoint.file_name}" if submission.checkpoint else ""
    received = f"Received: {plan.engine.label}{named} over {dataset}. Queued for a {queue_name} worker."
    Job.objects.create(
        kind=Job.Kind.MODEL,
        queue=queue_name,
        turn=queue.next_turn(queue_name, submission.team),
        submission=submission,
        dataset=dataset,
        file_name=submission.checkpoint.file_name if submission.checkpoint else "",
        state=State.QUEUED,
        validated=True,
        payload={
            **plan.payload(dataset),
            **({UNPROTECTED: True} if plan.unprotected else {}),
            **({"run_tag": run_tag} if run_tag else {}),
        },
        log=log_line(received),
    )
    queue.wake_worker(queue_name)


def _queue(plan: _Plan) -> Job.Queue:
    """As was asked for; else a GPU where a model can use one and a worker that is alive runs models on it."""
    if plan.device != "auto":
        return Job.Queue(plan.device)
    able = reported_capabilities(queues=[Job.Queue.GPU])
    gpu = plan.engine.needs_checkpoint and any(each.will_run(unprotected=plan.unprotected) for each in able)
    return Job.Queue.GPU if gpu else Job.Queue.CPU
