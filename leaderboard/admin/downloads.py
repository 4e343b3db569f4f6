"""Pages of a collection's download, between the choice of its source and the confirmation of its facts."""

from typing import Any

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.translation import gettext as _

from leaderboard.admin.pages import REFRESH, curation_page
from leaderboard.core.storage.store import Area
from leaderboard.importing.collections.detection import propose_name, propose_slug
from leaderboard.importing.collections.fetching import check_source
from leaderboard.importing.collections.source import ImportOptions
from leaderboard.importing.collections.staging import StagedFile
from leaderboard.models import Dataset


def request_download(page: Any, source: str, existing: Dataset | None, listing: Any = None) -> dict[str, Any]:
    """Queue the listing of a hub source, or the download of a listed or other one; return the session's values.

    Raises InvalidContent if the source is malformed. Callers check whether the site downloads collections.
    """
    check_source(source)
    # The listed commit is downloaded, even if the branch has changed.
    pinned = f"hf:{listing['repository']}@{listing['commit']}" if listing else source
    only_lists = source.startswith("hf:") and not listing
    job = page.request_download(pinned, scored_split(existing) or "test", existing, only_lists=only_lists)
    return {"job": job, "source": source, "existing": existing and existing.pk, "listing": listing}


def show_download(page: Any, request: HttpRequest, staged: dict[str, Any]) -> HttpResponse | None:
    """Show the listing or download of the session's source; on POST, start, repeat, or cancel it.

    Once the collection is downloaded, add it to `staged` and return None, also if its job no longer exists.
    """
    job, existing = page.download_job(staged["job"]), Dataset.objects.filter(pk=staged["existing"]).first()
    if not job:
        staged.clear()
        return None
    row, action = job["row"], request.POST.get("action")
    listing = staged["listing"] or row.payload.get("listing")
    if collection := row.payload.get("collection"):
        # Retrievers write the payload, so it determines neither the area nor the name of the file.
        file = StagedFile.build(collection["sha256"], staged["source"], Area.DOWNLOADS)
        proposal = propose_import(
            file, staged["source"], existing, collection["facts"], ImportOptions(**collection["options"])
        )
        staged.clear()
        staged.update(proposal, listing=listing)
        request.session.modified = True
    elif action == "cancel":
        page.cancel_download(row.pk)
    elif action == "start" and not job["is_active"] and page.may_download():
        staged.update(request_download(page, staged["source"], existing, listing))
        request.session.modified = True
    if action or collection:
        return HttpResponseRedirect(request.get_full_path()) if action else None
    return curation_page(
        request, page, "admin/leaderboard/dataset/download.html", _("Download %(source)s") % staged,
        problems=row.report.get("problems", []), problems_note=_("Nothing was downloaded:"), job=job, listing=listing,
        source=staged["source"], may_download=page.may_download(), refresh=REFRESH if job["is_active"] else 0,
        status=200,
    )  # fmt: skip


def scored_split(existing: Dataset | None) -> str:
    """Return the split of a dataset's judgments, or an empty string without dataset or judgments."""
    qrels = existing.current_qrels if existing else None
    return qrels.split if qrels else ""


def propose_import(
    file: StagedFile, source: str, existing: Dataset | None, facts: dict[str, Any], options: ImportOptions
) -> dict[str, Any]:
    """Return what the session stores about a staged collection, with initial values of its form.

    `source` is the name of the uploaded file or of the source, and `options` contains what the source states.
    """
    name, split = propose_name(source), scored_split(existing) or facts["split"] or "test"
    slug = existing.slug if existing else propose_slug(name)
    initial = {"slug": slug, "split": split, "collecting": split not in facts["judgements"]}
    initial |= {"runs_only": not facts["has_corpus"], "version_label": options.version_label}
    if not Dataset.objects.filter(slug=slug).exists():  # An existing dataset keeps its description.
        initial |= {"name": name, "language": facts["language"], "licence": options.card.get("licence", "")}
        initial["task"] = options.card.get("task", "").replace("-", " ").title()
    origin = {"source": options.source, "ir_datasets_id": options.ir_datasets_id}
    return {"archive": file, "baseline": None, "existing": bool(existing), "facts": facts, "initial": initial,
            "origin": origin}  # fmt: skip
