"""Pages for models: submitting one to an engine, and the reference of what is accepted."""

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from evaluation.archives.compression import describe_bytes
from evaluation.checkpoints.configuration import library_models
from evaluation.checkpoints.description import CheckpointKind
from evaluation.checkpoints.findings import CODES
from evaluation.core.problems import Problem, codes_about
from evaluation.engines import ENGINES, EngineDescription
from evaluation.engines.prompts import TEMPLATES, format_prompt
from leaderboard.boards.state import choice
from leaderboard.core.cache.pages import cache_page
from leaderboard.core.http.query_parameters import reads
from leaderboard.datasets.files import offered_files
from leaderboard.models import Architecture, DatasetFile
from leaderboard.rounds.lifecycle import closed_datasets
from submissions.accounts.permissions import checkpoints_of, personal_page, teams_of
from submissions.checkpoints import reference
from submissions.checkpoints import service as checkpoints
from submissions.checkpoints.hub import HubModel, fetches
from submissions.core.errors import Refused
from submissions.intake.checkpoints import intake
from submissions.intake.checkpoints.forms import ModelForm, ParametersForm, PromptsForm
from submissions.intake.checkpoints.readiness import is_local_request, quota_of, readiness
from submissions.intake.checkpoints.runs import sources_for
from submissions.intake.files import incoming_file, incoming_files
from submissions.models import Checkpoint, Job, Submission, Upload
from submissions.queue.workers import workers_alive
from submissions.status.estimates import ENOUGH, ModelLoad, estimate_time, similar_finished_jobs
from submissions.uploads.handler import CHECKPOINT_FIELD
from submissions.views.submit_page import UPLOADED, SubmissionPage

#: The engine that is shown first, where there is one of this name.
USUAL = "dense"
#: Fields of an engine's parameters are named `parameter-<name>`.
PARAMETERS = "parameter"
#: Those of the prompts of single datasets `prompt-<slug>-<name>`.
PROMPTS = "prompt"
#: Kinds that a plain encoder is taken as, if the pooling is said.
TAKEN_PLAIN = frozenset({CheckpointKind.SENTENCE_ENCODER, CheckpointKind.SPARSE_ENCODER})
#: The kinds of files that are checkpoints to try the page with.
SAMPLES = frozenset({"example_model", "refused_model"})


#: Groups of engines in the page's order.
ENCODERS, RERANKERS, NO_MODEL = "Encoders", "Re-rankers", "No model needed"
OVER_BM25 = "Expansion and weighting over BM25"


def requested_engine(request: HttpRequest) -> EngineDescription:
    """Return the engine of the form or the address, by default the usual one. Raises UnknownChoice."""
    wanted = request.POST.get("engine") or choice(request.GET, "engine", ENGINES) or USUAL
    return ENGINES.get(wanted) or ENGINES.get(USUAL) or next(iter(ENGINES.values()))


class ModelPage(SubmissionPage):
    """The forms for one engine, bound to a request, and the translation of what was sent."""

    template = "submissions/submit_model.html"
    kind = Upload.Kind.MODEL

    def __init__(self, request: HttpRequest, engine: EngineDescription | None = None) -> None:
        self.engine = engine or requested_engine(request)
        super().__init__(request, self.engine.architecture)
        posted = request.POST if request.method == "POST" else None
        self.parameters = ParametersForm(self.engine, posted, prefix=PARAMETERS, label_suffix="")
        wanted = set(intake.kinds_of(self.engine))
        self.checkpoints = [
            row for row in checkpoints_of(self.person) if checkpoints.describe(row).kinds & wanted
        ]
        needs_corpus = self.engine.reads_corpus
        self.datasets = [
            each for each in intake.datasets_with_content() if intake.has_corpus(each) or not needs_corpus
        ]
        self.prompts = PromptsForm(self.engine, self.datasets, posted, prefix=PROMPTS, label_suffix="")
        self.sources = sources_for(teams_of(self.person)) if self.engine.runs[1] else []
        self.model_form = ModelForm(
            posted,
            checkpoints=self.checkpoints,
            datasets=self.datasets,
            benchmarks=intake.benchmarks_for_models(),
            sources=self.sources,
            initial={"dataset": request.GET.getlist("dataset"), "device": "auto"},
            label_suffix="",
        )

    def is_valid(self) -> bool:
        """Whether all forms are well formed."""
        forms = (self.parameters, self.prompts, self.model_form)
        return all([super().is_valid(), *(form.is_valid() for form in forms)])

    def submit(self) -> Submission:
        """Accept the submission, from valid forms. Raises Refused."""
        values = self.model_form.cleaned_data
        slugs = self.prompts.slugs if values["benchmark"] else values["dataset"]
        hub = HubModel(values["hub_model"], values["hub_commit"]) if values["hub_model"] else None
        request = intake.ModelRequest(
            engine=self.engine.name,
            parameters=self.parameters.cleaned_data,
            prompts=self.prompts.chosen(slugs),
            model=intake.chosen_model(self.person, self.archive(), values["checkpoint_id"], hub),
            datasets=() if values["benchmark"] else tuple(values["dataset"]),
            benchmark=values["benchmark"],
            runs=tuple(values["run"]),
            device=values["device"] or "auto",
            local=is_local_request(self.request),
        )
        return intake.accept_model(self.person, request=request, **self.about())

    def archive(self) -> checkpoints.CheckpointArchive | None:
        """Return the archive that was uploaded, with this form or before it. Raises Refused where there are several."""
        post, sent = self.request.POST, self.request.FILES.getlist(CHECKPOINT_FIELD)
        named, pooling = post.getlist(f"{UPLOADED}{CHECKPOINT_FIELD}"), post.get("pooling", "")
        files = incoming_files(self.person, sent, named, Upload.Kind.MODEL)
        return intake.one_archive(files, pooling if pooling in intake.POOLINGS else "")

    def check(self) -> HttpResponse:
        """Return the verdict on the archive, on the page of an engine that runs its kind.

        Raises Refused, and TooManyChecks.
        """
        archive = self.archive()
        if archive is None:
            raise Refused.of(
                intake.NO_CHECKPOINT, "No checkpoint was sent.", "Choose an archive to be checked."
            )
        page, report = self, checkpoints.check_checkpoint(archive, intake.kinds_of(self.engine))
        if not report.report.valid:
            other = checkpoints.check_checkpoint(archive)
            made_for = {row["kind"]: row["engines"] for row in reference.kinds()}
            engines = made_for.get(other.model.get("kind")) if other.report.valid else None
            if engines:
                page, report = ModelPage(self.request, engines[0]), other
        return page.show(reports=[report], model=report.model)

    def context(
        self, *arguments: Any, model: Mapping[str, Any] | None = None, **changes: Any
    ) -> dict[str, Any]:
        """Return the values that the template shows; `model` describes one that was just checked, for estimates."""
        chosen_id = self.model_form["checkpoint_id"].value()
        kept = next((row for row in self.checkpoints if str(row.pk) == chosen_id), None)
        described = model or (kept.description if kept else {})
        kind = str(described.get("kind", kept.kind if kept else ""))
        chosen = getattr(self.parameters, "cleaned_data", {})
        load = ModelLoad(self.engine, kind, described.get("parameters"), chosen)
        shared = super().context(*arguments, **changes)
        kinds = intake.kinds_of(self.engine)
        only_tokenizer = len(kinds) == len(CheckpointKind)
        return {
            **shared,
            "engine": self.engine,
            "engines": self._engines(),
            "needs": checkpoints.in_words(kinds) + (", for its tokenizer" if only_tokenizer else ""),
            "steps": self._steps(),
            "load": load,
            "asks_pooling": bool(TAKEN_PLAIN & set(kinds)),
            "parameters_form": self.parameters,
            "model_form": self.model_form,
            "checkpoints": self.checkpoints,
            "kept_prompts": self._kept_prompts(),
            "sources": self.sources,
            "recognised": shared["checked"] and self.engine != requested_engine(self.request),
            "hub": fetches(),
            "offers": list(self._offers(load)),
            "enough_jobs": ENOUGH,
            "quota": quota_of(teams_of(self.person).first()),
            "readiness": readiness(self.person, local=is_local_request(self.request)),
            "workers": {name: workers_alive(name) for name in (Job.Queue.CPU.value, Job.Queue.GPU.value)},
            "samples": self._samples(),
            "largest": describe_bytes(settings.CHECKPOINT_LIMIT_BYTES),
            "largest_in_pieces": describe_bytes(settings.CHECKPOINT_PIECES_LIMIT_BYTES),
        }

    def _kept_prompts(self) -> list[tuple[Checkpoint, str, list[Problem]]]:
        """Return the models sent before that have or need prompts, each with its family and remarks."""
        found = [
            (
                row,
                checkpoints.prompt_template(row.description, row.file_name),
                checkpoints.remarks_on_prompts(row.description, row.file_name),
            )
            for row in self.checkpoints
        ]
        return [each for each in found if each[0].description.get("prompts") or each[1]]

    def kept_files(self, refused: Collection[str], *, takes: bool) -> list[tuple[Upload, bool]]:
        """Return the person's archives that are here, one that just came among them, and whether each is chosen."""
        chosen = self.request.POST.getlist(f"{UPLOADED}{CHECKPOINT_FIELD}")
        sent = self.request.FILES.getlist(CHECKPOINT_FIELD) if takes and self.request.method == "POST" else []
        chosen += self.keep(map(incoming_file, sent), refused)
        return [(each, each.pk in chosen) for each in self.whole_uploads()]

    def _steps(self) -> dict[str, int]:
        """Return the number of each section that the engine has."""
        engine = self.engine
        shown = {"engine": True, "model": engine.needs_checkpoint, "runs": engine.runs[1] > 0}
        names = [*(name for name, there in shown.items() if there), "datasets", "system", "submission"]
        return {name: number for number, name in enumerate(names, 1)}

    def _engines(self) -> dict[str, list[EngineDescription]]:
        """Return the engines, grouped by the model that they need."""
        names = (ENCODERS, RERANKERS, OVER_BM25, NO_MODEL)
        groups: dict[str, list[EngineDescription]] = {name: [] for name in names}
        for each in ENGINES.values():
            name = OVER_BM25 if each.computes_bm25 else ENCODERS
            if each.architecture == Architecture.RE_RANKING:
                name = RERANKERS
            groups[name if each.needs_checkpoint else NO_MODEL].append(each)
        return groups

    def _offers(self, load: ModelLoad) -> Iterator[dict[str, Any]]:
        """Yield the datasets, with what a run on each will probably take, and why one takes none just now."""
        chosen = self.model_form["dataset"].value() or []
        history = similar_finished_jobs(load) if load.known else []
        shut = closed_datasets((each.pk for each in self.datasets), timezone.now())
        for each in self.datasets:
            prompts = self.prompts.of(each.slug)
            yield {
                "dataset": each,
                "estimate": estimate_time(load, history, each) if load.known else None,
                "chosen": each.slug in chosen,
                "shut": shut.get(each.pk, ""),
                "prompts": prompts,
                "has_prompts": any(field.errors or field.value() for field in prompts),
            }

    def _samples(self) -> list[DatasetFile]:
        """Return archives to try the engine with, if this site has any: one that runs, one that is refused."""
        if CheckpointKind.STATIC_EMBEDDINGS not in intake.kinds_of(self.engine):
            return []
        files = [file for dataset in self.datasets for file in offered_files(dataset, self.person)]
        return [file for file in files if file.kind in SAMPLES]


@personal_page("GET", "HEAD", "POST")
@reads("engine", "dataset")
def submit_model(request: HttpRequest) -> HttpResponse:
    """Answer the page for models, with the form of an engine (`?engine=`)."""
    return ModelPage(request).answer()


@require_safe
@cache_page(lambda: f"hub {fetches()}")
def models(request: HttpRequest) -> HttpResponse:
    """Kinds, engines with their parameters, types of models, prompts, limits, refusals."""
    context = {
        "section": "models",
        "kinds": reference.kinds(),
        "engines": list(ENGINES.values()),
        "library": library_models().version,
        "templates": [(each, format_prompt(each.query), format_prompt(each.document)) for each in TEMPLATES],
        "limits": reference.limits(),
        "hub": fetches(),
        "codes": list(CODES.items()),
        "failure_codes": [code for code in codes_about("model") if code not in CODES],
    }
    return render(request, "submissions/models.html", context)
