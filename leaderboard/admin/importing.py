"""Pages of *Import dataset*: choice of a source, confirmation of the detected facts, and progress of the baseline.

The collection is stored in `Area.STAGED` or `Area.DOWNLOADS` until it is confirmed, and the session refers to it. After
the import, the session contains the result instead, so a form that is submitted twice imports the dataset only once.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils.crypto import get_random_string
from django.utils.http import urlencode
from django.utils.translation import gettext as _

from evaluation.core.problems import InvalidContent
from leaderboard.admin.base import curator
from leaderboard.admin.downloads import propose_import, request_download, scored_split, show_download
from leaderboard.admin.import_form import ImportForm, SourceForm, name_fields, uploaded_path
from leaderboard.admin.pages import REFRESH, curation_page, object_crumb, require
from leaderboard.core.audit import acting
from leaderboard.core.permissions import may_read_judgements
from leaderboard.datasets.files import seals_queries
from leaderboard.datasets.problems import problem
from leaderboard.datasets.terms import near_duplicates
from leaderboard.importing.collections.detection import detect_facts
from leaderboard.importing.collections.importer import DiskSpaceError
from leaderboard.importing.collections.source import ImportOptions, Progress
from leaderboard.importing.collections.staging import StagedFile, stage_file
from leaderboard.models import Dataset, Entry, Qrels, Visibility, WorkRequest

#: Maximum seconds that a step may take in a request.
MAX_SECONDS = 100
#: Permission to import datasets.
IMPORTS = "leaderboard.add_dataset"
#: Key of the session's imports, and the maximum number of them.
_SESSION, _MAX_IMPORTS = "imports", 10


def import_view(page: Any, request: HttpRequest) -> HttpResponse:
    """Show the form for the source; on POST, stage a zip or queue a download, and redirect to its confirmation.

    If the URL names a staged source, show or process its confirmation instead. The status is 400 for problems, and 507
    if the disk is full.
    """
    require(request, IMPORTS)
    if "staged" in request.GET:
        return _confirm(page, request, request.GET["staged"])
    existing = _find_dataset(request.GET.get("dataset", ""))
    form = SourceForm(request.POST or None, request.FILES or None)
    if not page.may_download():
        form.fields["source"].disabled = True
        form.fields["source"].help_text = ""

    def act() -> HttpResponse:
        key, imports = get_random_string(12), request.session.get(_SESSION, {})
        newest = list(imports.items())[1 - _MAX_IMPORTS :]
        request.session[_SESSION] = {**dict(newest), key: _stage(page, form.cleaned_data, existing)}
        return HttpResponseRedirect(_import_url(staged=key))

    response, context = _attempt(act) if request.method == "POST" and form.is_valid() else (None, {})
    return response or curation_page(
        request, page, "admin/leaderboard/dataset/import.html", _title(existing),
        form=form, existing=existing, may_download=page.may_download(), **context,
    )  # fmt: skip


def _title(existing: Dataset | None) -> str:
    return _("Update %(dataset)s") % {"dataset": existing} if existing else _("Import dataset")


def _find_dataset(slug: str) -> Dataset | None:
    return Dataset.objects.filter(slug=slug.replace("\0", "")).first()


def _import_url(**query: str) -> str:
    return f"{reverse('admin:leaderboard_dataset_import')}?{urlencode(query)}".rstrip("?")


def _attempt(act: Callable[[], HttpResponse]) -> tuple[HttpResponse | None, dict[str, Any]]:
    """Return the response of `act`, or None and the context of a page that reports the problems or a full disk."""
    try:
        return act(), {}
    except InvalidContent as error:
        problems = [
            item.as_dict() | {"message": name_fields(item.message), "hint": name_fields(item.hint)}
            for item in error.report.problems
        ]
        return None, {"problems": problems, "problems_note": _("Nothing was imported:")}
    except DiskSpaceError as error:
        return None, {"disk_error": str(error), "status": 507}


def _stage(page: Any, values: dict[str, Any], existing: Dataset | None) -> dict[str, Any]:
    """Stage and inspect the form's zip, or queue the listing of its source; return what the session stores about it.

    Raises InvalidContent with all problems, or DiskSpaceError.
    """
    if values["source"]:
        return request_download(page, values["source"], existing)
    upload, options = values["archive"], ImportOptions(slug="staged", split=scored_split(existing) or "test")
    file = stage_file(uploaded_path(upload), upload.name)
    try:
        with file.open() as archive:
            facts = detect_facts(archive, options, _limit_time())
    except BaseException:
        file.discard()
        raise
    return propose_import(file, upload.name, existing, facts, options)


def _confirm(page: Any, request: HttpRequest, key: str) -> HttpResponse:
    """Show the facts and the form; on POST, import the staged source and redirect to the result, or list problems.

    Shows the download until it has ended. Redirects to the choice of a source if the staged one is unknown or expired,
    and to the result after an import.
    """
    staged = request.session.get(_SESSION, {}).get(key, {})
    if "result" in staged:
        return HttpResponseRedirect(_result_url(key, staged["result"]))
    if "job" in staged and (response := show_download(page, request, staged)):
        return response
    if not staged or not StagedFile(*staged["archive"]).path.is_file():
        messages.error(request, _("The collection is no longer stored, and was not imported. Choose it again."))
        return HttpResponseRedirect(_import_url())
    target = _find_dataset(staged["initial"]["slug"])
    existing = target if staged["existing"] else None
    form = ImportForm(
        request.POST or None, request.FILES or None,
        existing=existing, splits=staged["facts"]["judgements"],
        initial=({} if target else {"primary": Dataset._meta.get_field("primary_measure").default}) | staged["initial"],
    )  # fmt: skip
    run = request.FILES.get("baseline")
    if run is not None:
        staged["baseline"] = stage_file(uploaded_path(run), run.name or "run")
        request.session.modified = True
    if staged["baseline"]:
        kept = _("Selected: %(file)s. Choose another file to replace it.") % {"file": staged["baseline"][1]}
        form.fields["baseline"].help_text = kept

    def act() -> HttpResponse:
        result = _import_staged(page, request, form, staged)
        staged.clear()
        staged["result"] = result
        request.session.modified = True
        return HttpResponseRedirect(_result_url(key, result))

    is_confirmed = request.method == "POST" and form.is_valid() and _may_import(request, form)
    response, context = _attempt(act) if is_confirmed else (None, {})
    return response or curation_page(
        request, page, "admin/leaderboard/dataset/confirm.html", _title(existing),
        form=form, facts=staged["facts"], listing=staged.get("listing"), file_name=staged["archive"][1], target=target,
        **context,
    )  # fmt: skip


def _import_staged(page: Any, request: HttpRequest, form: ImportForm, staged: dict[str, Any]) -> dict[str, Any]:
    """Import the staged source with the values of the form, and return the result for the session.

    The result has the dataset, sentences about each imported dataset, and warnings about similar terms.

    Raises InvalidContent with all problems, or DiskSpaceError.
    """
    with ExitStack() as stack:
        files = {name: StagedFile(*staged[name]) for name in ("archive", "baseline") if staged[name]}
        paths = {name: stack.enter_context(file.open()) for name, file in files.items()}
        stack.enter_context(acting(curator(request), "imported in the admin"))
        options = replace(form.options(), baseline=paths.get("baseline"), **staged["origin"])
        results = form.import_from(paths["archive"], options, _limit_time())
    for file in files.values():
        file.discard()
    texts, warnings = [], []
    for imported in results:
        if imported.changes:
            text = f"Imported {imported.version}. Changed: {', '.join(imported.changes)}."
        else:
            text = f"No changes: {imported.version} has exactly this content and these settings."
        text = " ".join([text, *imported.remarks, imported.disclosure()])
        page.log_change(request, imported.dataset, text)
        texts.append(text)
        warnings += near_duplicates(imported.dataset)
    return {"dataset": results[0].dataset.pk, "texts": texts, "warnings": warnings}


def _result_url(key: str, result: dict[str, Any]) -> str:
    return f"{reverse('admin:leaderboard_dataset_imported', args=[result['dataset']])}?{urlencode({'staged': key})}"


def imported_view(page: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """Show the result of this session's import, the progress of the dataset's baseline, and links."""
    require(request, IMPORTS)
    dataset = get_object_or_404(Dataset, pk=pk)
    result = request.session.get(_SESSION, {}).get(request.GET.get("staged", ""), {}).get("result", {})
    kinds = (WorkRequest.Kind.BASELINE, WorkRequest.Kind.SCORE)
    is_requested = WorkRequest.objects.filter(dataset=dataset, kind__in=kinds, taken_at=None).exists()
    baselines = Entry.objects.filter(dataset=dataset, is_baseline=True, evaluation__qrels=dataset.current_qrels)
    job = page.baseline_job(dataset)
    return curation_page(
        request, page, "admin/leaderboard/dataset/imported.html", _("Imported"),
        crumbs=[object_crumb(page, dataset)], dataset=dataset, job=job, is_requested=is_requested,
        baseline=baselines.select_related("system").first(), result=result if result.get("dataset") == pk else {},
        refresh=REFRESH if is_requested or job.get("is_active") else 0,
    )  # fmt: skip


def _limit_time() -> Progress:
    """Return a progress callback that raises InvalidContent once `MAX_SECONDS` have passed."""
    end = monotonic() + MAX_SECONDS

    def progress(stage: str, share: float) -> None:
        if monotonic() > end:
            message = f"the import took more than {MAX_SECONDS} s and was stopped at “{stage}”"
            hint = "The dataset was not stored. Import large ones on the server: manage.py import_dataset --by EMAIL."
            raise InvalidContent.build(problem("import_too_slow", message, hint))

    return progress


def _may_import(request: HttpRequest, form: ImportForm) -> bool:
    """Return whether the user may do the requested import; if not, add errors to the form.

    Only users who may read hidden judgments may publish them, hidden queries, or the runs of a hidden dataset.
    """
    values = form.cleaned_data
    dataset = Dataset.objects.filter(slug=values["slug"], hidden=True).exclude(current_version=None).first()
    if dataset is None or may_read_judgements(curator(request)):
        return True
    hint = "Ask a user who may read hidden judgments to do this."
    if values["judgements"] == "open":
        consequence = f"all runs on {dataset} once it is judged, and its judgments"
        if Qrels.objects.filter(version__dataset=dataset).exists():  # Older versions may have judgments, too.
            consequence = f"the hidden judgments of {dataset}, and all runs on them"
        form.add_error("judgements", f"This would publish {consequence}. {hint}")
    if seals_queries(dataset) and values["queries_visibility"] not in ("", Visibility.CURATORS):
        form.add_error("queries_visibility", f"This would publish the hidden queries of {dataset}. {hint}")
    return not form.errors
