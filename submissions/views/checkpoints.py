"""Views that submit models and list supported models."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from evaluation.archives.compression import describe_bytes
from evaluation.checkpoints.configuration import library_models
from evaluation.checkpoints.description import MODEL_KINDS, CheckpointKind
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import Problem, codes_about
from evaluation.engines import ENGINES, EngineDescription
from evaluation.engines.prompts import TEMPLATES, format_prompt
from evaluation.engines.serving import labelled_engine
from leaderboard.boards.state import choice
from leaderboard.core.cache.pages import cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.datasets.files import offered_files
from leaderboard.models import Architecture, DatasetFile
from leaderboard.rounds.lifecycle import closed_datasets
from submissions.accounts.permissions import get_checkpoints, personal_page
from submissions.checkpoints import reference
from submissions.checkpoints import service as checkpoints
from submissions.checkpoints.hub import fetches
from submissions.core.errors import Refused
from submissions.intake.checkpoints import intake
from submissions.intake.checkpoints.forms import ModelForm, ParametersForm, PromptsForm
from submissions.intake.checkpoints.readiness import count_model_runs, is_local_request, readiness
from submissions.intake.checkpoints.runs import get_sources
from submissions.intake.files import incoming_file, incoming_files
from submissions.models import Checkpoint, Job, Submission, Upload
from submissions.status.estimates import MIN_SIMILAR, ModelLoad, estimate_time, similar_finished_jobs
from submissions.uploads.handler import CHECKPOINT_FIELD
from submissions.views.submit_page import UPLOAD_PREFIX, SubmissionPage, available_first

#: Default engine, if it exists.
DEFAULT_ENGINE = "dense"
#: Prefix of fields for engine parameters: `parameter-<name>`.
PARAMETERS = "parameter"
#: Prefix of fields for dataset-specific prompts: `prompt-<slug>-<name>`.
PROMPTS = "prompt"
#: Possible kinds of a plain encoder with a given pooling.
PLAIN_ENCODER_KINDS = frozenset({CheckpointKind.SENTENCE_ENCODER, CheckpointKind.SPARSE_ENCODER})
#: Kinds of dataset files that are sample checkpoints.
SAMPLE_KINDS = frozenset({"example_model", "refused_model"})


#: Groups of engines in display order.
ENCODERS, RERANKERS, NO_MODEL = "Encoders", "Re-rankers", "No model needed"
BASED_ON_BM25 = "Expansion and weighting over BM25"
IMAGES = "Container images"


def requested_engine(request: HttpRequest) -> EngineDescription:
    """Return the engine named in the form or the URL, or the default engine.

    An unknown engine in the form means the default engine. Raises UnknownChoice for an unknown engine in the URL.
    """
    engine_name = request.POST.get("engine") or choice(request.GET, "engine", ENGINES) or DEFAULT_ENGINE
    return ENGINES.get(engine_name) or ENGINES.get(DEFAULT_ENGINE) or next(iter(ENGINES.values()))


class ModelPage(SubmissionPage):
    """Forms to submit a model to one engine, bound to a request."""

    template = "submissions/submit_model.html"
    kind = Upload.Kind.MODEL
    queues = (Job.Queue.CPU, Job.Queue.GPU)

    def __init__(self, request: HttpRequest, engine: EngineDescription | None = None) -> None:
        """Create the forms with the checkpoints, datasets, and runs that the engine can use, filled from a POST."""
        self.engine = engine or requested_engine(request)
        super().__init__(request, "" if self.engine.any_architecture else self.engine.architecture)
        data = request.POST if request.method == "POST" else None
        self.parameters = ParametersForm(self.engine, data, prefix=PARAMETERS, label_suffix="")
        kinds = set(intake.checkpoint_kinds(self.engine))
        self.checkpoints = [row for row in get_checkpoints(self.person) if checkpoints.describe(row).kinds & kinds]
        needs_corpus = self.engine.reads_corpus
        self.datasets = [row for row in intake.datasets_with_content() if intake.has_corpus(row) or not needs_corpus]
        self.prompts = PromptsForm(self.engine, self.datasets, data, prefix=PROMPTS, label_suffix="")
        self.sources = get_sources(self.teams) if self.engine.runs[1] else []
        self.model_form = ModelForm(
            data,
            checkpoints=self.checkpoints,
            datasets=self.datasets,
            benchmarks=intake.benchmarks_for_models(),
            sources=self.sources,
            initial={"dataset": request.GET.getlist("dataset"), "device": "auto"},
            label_suffix="",
        )

    def is_valid(self) -> bool:
        forms = (self.parameters, self.prompts, self.model_form)
        return all([super().is_valid(), *(form.is_valid() for form in forms)])

    def submit(self) -> Submission:
        """Submit the model and return the submission. The forms must be valid. Raises Refused."""
        values = self.model_form.cleaned_data
        slugs = self.prompts.slugs if values["benchmark"] else values["dataset"]
        request = intake.ModelRequest(
            engine=self.engine.name,
            parameters=self.parameters.cleaned_data,
            prompts=self.prompts.get_prompts(slugs),
            model=intake.chosen_model(self.user, self.archive(), values["checkpoint_id"], values),
            datasets=() if values["benchmark"] else tuple(values["dataset"]),
            benchmark=values["benchmark"],
            runs=tuple(values["run"]),
            device=values["device"] or "auto",
            local=is_local_request(self.request),
        )
        return intake.accept_model(self.user, request=request, **self.submission_arguments())

    def archive(self) -> checkpoints.CheckpointArchive | None:
        """Return the archive, sent with this form or uploaded before, or None. Raises Refused if there are several."""
        post, sent_files = self.request.POST, self.request.FILES.getlist(CHECKPOINT_FIELD)
        upload_ids, pooling = post.getlist(f"{UPLOAD_PREFIX}{CHECKPOINT_FIELD}"), post.get("pooling", "")
        files = incoming_files(self.user, sent_files, upload_ids, Upload.Kind.MODEL)
        return intake.one_archive(files, pooling if pooling in intake.POOLINGS else "")

    def check(self) -> HttpResponse:
        """Return a page with the report of the sent archive, without submitting it.

        If the page's engine cannot run the archive but another one can, the page is that of the first such engine.
        Raises Refused if no archive was sent or the team may not send it, and TooManyChecks.
        """
        archive = self.archive()
        if archive is None:
            raise Refused.for_problem(intake.NO_CHECKPOINT, "No checkpoint was sent.", "Choose an archive to check.")
        page, report = self, intake.check_model(self.user, archive, self.engine)
        if self.engine.runs_image:
            labelled = labelled_engine(report.model.get("model_type", ""))
            return (ModelPage(self.request, labelled) if labelled else self).show(reports=[report], model=report.model)
        if not report.report.valid:
            other_report = intake.check_model(self.user, archive, None)
            engines = {row["kind"]: row["engines"] for row in reference.kinds()}.get(other_report.model.get("kind"))
            if engines and other_report.report.valid:
                page, report = ModelPage(self.request, engines[0]), other_report
        return page.show(reports=[report], model=report.model)

    def context(self, *arguments: Any, model: Mapping[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
        """Return the template's context. `model` describes a checkpoint that was just validated, for estimates."""
        chosen_id = self.model_form["checkpoint_id"].value()
        chosen_checkpoint = next((row for row in self.checkpoints if str(row.pk) == chosen_id), None)
        description = model or (chosen_checkpoint.description if chosen_checkpoint else {})
        kind = str(description.get("kind", chosen_checkpoint.kind if chosen_checkpoint else ""))
        load = ModelLoad(self.engine, kind, description.get("parameters"), getattr(self.parameters, "cleaned_data", {}))
        base_context = super().context(*arguments, **changes)
        kinds = intake.checkpoint_kinds(self.engine)
        return {
            **base_context,
            "engine": self.engine,
            "engines": self._engine_groups(),
            "needs": checkpoints.name_kinds(kinds) + (", for its tokenizer" if len(kinds) == len(MODEL_KINDS) else ""),
            "load": load,
            "asks_pooling": bool(PLAIN_ENCODER_KINDS & set(kinds)),
            "parameters_form": self.parameters,
            "model_form": self.model_form,
            "checkpoints": self.checkpoints,
            "kept_prompts": self._get_prompt_rows(),
            "sources": self.sources,
            "recognised": base_context["checked"] and self.engine != requested_engine(self.request),
            "hub": fetches(),
            "offers": available_first(self._dataset_offers(load), base_context["dataset_quotas"]),
            "enough_jobs": MIN_SIMILAR,
            "quota": count_model_runs(self.chosen_team),
            "readiness": readiness(self.user, local=is_local_request(self.request)),
            "samples": self._samples(),
            "largest": describe_bytes(settings.CHECKPOINT_LIMIT_BYTES),
            "largest_in_pieces": describe_bytes(settings.CHECKPOINT_PIECES_LIMIT_BYTES),
            "largest_image": describe_bytes(checkpoints.image_limits().archive_bytes),
            "runs_images": any(team.runs_containers for team in self.teams),
        }

    def _get_prompt_rows(self) -> list[tuple[Checkpoint, str, list[Problem]]]:
        """Return the stored models that have or need prompts, each with its model family and remarks on its prompts."""
        template, remarks = checkpoints.prompt_template, checkpoints.remarks_on_prompts
        arguments = [(row, row.description, row.file_name) for row in self.checkpoints]
        rows = [(row, template(*texts), remarks(*texts)) for row, *texts in arguments]
        return [row for row in rows if row[0].description.get("prompts") or row[1]]

    def stored_uploads(self, refused_names: Collection[str], *, store: bool) -> list[tuple[Upload, bool]]:
        """Return the user's complete uploads of archives, each with whether it is selected.

        If `store` is true, archives sent with the form are first stored as uploads, except refused ones.
        """
        chosen_ids = self.request.POST.getlist(f"{UPLOAD_PREFIX}{CHECKPOINT_FIELD}")
        sent_files = self.request.FILES.getlist(CHECKPOINT_FIELD) if store and self.request.method == "POST" else []
        chosen_ids += self.store_uploads(map(incoming_file, sent_files), refused_names)
        return [(upload, upload.pk in chosen_ids) for upload in self.complete_uploads()]

    def _engine_groups(self) -> dict[str, list[EngineDescription]]:
        """Return the engines in groups: encoders, re-rankers, those based on BM25, and those without a model."""
        names = (ENCODERS, RERANKERS, BASED_ON_BM25, NO_MODEL, *([IMAGES] if settings.CONTAINERS else []))
        groups: dict[str, list[EngineDescription]] = {name: [] for name in names}
        for engine in ENGINES.values():
            if engine.runs_image:
                groups.get(IMAGES, []).append(engine)
                continue
            name = BASED_ON_BM25 if engine.computes_bm25 else ENCODERS
            if engine.architecture == Architecture.RE_RANKING:
                name = RERANKERS
            groups[name if engine.needs_checkpoint else NO_MODEL].append(engine)
        return groups

    def _dataset_offers(self, load: ModelLoad) -> Iterator[dict[str, Any]]:
        """Yield each dataset with its estimated run time, the fields of its prompts, and the reason if it is closed."""
        chosen_slugs = self.model_form["dataset"].value() or []
        history = similar_finished_jobs(load) if load.known else []
        closed_reasons = closed_datasets((dataset.pk for dataset in self.datasets), timezone.now())
        for dataset in self.datasets:
            prompts = self.prompts.get_dataset_fields(dataset.slug)
            yield {
                "dataset": dataset,
                "estimate": estimate_time(load, history, dataset) if load.known else None,
                "chosen": dataset.slug in chosen_slugs,
                "shut": closed_reasons.get(dataset.pk, ""),
                "prompts": prompts,
                "has_prompts": any(field.errors or field.value() for field in prompts),
            }

    def _samples(self) -> list[DatasetFile]:
        """Return sample archives of this site: one that runs and one that is rejected."""
        if CheckpointKind.STATIC_EMBEDDINGS not in intake.checkpoint_kinds(self.engine):
            return []
        return [file for row in self.datasets for file in offered_files(row, self.person) if file.kind in SAMPLE_KINDS]


@personal_page("GET", "HEAD", "POST")
@reads("engine", "dataset", "system")
def submit_model(request: HttpRequest) -> HttpResponse:
    """Show or process the page that submits models, for the engine `?engine=`."""
    return ModelPage(request).answer()


@require_safe
@cache_page(lambda: f"hub {fetches()}")
def models(request: HttpRequest) -> HttpResponse:
    """Show supported kinds, engines, parameters, model types, prompts, limits, and error codes."""
    context = {
        "section": "docs",
        "kinds": reference.kinds(),
        "engines": list(ENGINES.values()),
        "library": library_models().version,
        "templates": [
            (prompts, format_prompt(prompts.query), format_prompt(prompts.document)) for prompts in TEMPLATES
        ],
        "limits": reference.limits(),
        "hub": fetches(),
        "codes": list(CODES.items()),
        "failure_codes": [code for code in codes_about("model") if code not in CODES],
    }
    return render(request, "submissions/models.html", context)
