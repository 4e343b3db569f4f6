"""Downloads of what a dataset offers: always as an attachment, never as a page."""

from __future__ import annotations

from collections.abc import Callable

from django.http import FileResponse, Http404, HttpRequest, HttpResponseBase, HttpResponseNotModified
from django.shortcuts import get_object_or_404, redirect
from django.templatetags.static import static
from django.views.decorators.http import require_safe

from leaderboard import audit
from leaderboard.files import find_file, is_sealed, open_file, sees
from leaderboard.models import Dataset, User
from leaderboard.models.datasets import Visibility


def visible_dataset(request: HttpRequest, slug: str) -> Dataset:
    """The dataset, if it has a page for this visitor. Raises Http404."""
    datasets = Dataset.objects.select_related("current_version", "current_qrels")
    dataset = get_object_or_404(datasets, slug=slug)
    if dataset.state == Dataset.State.PREPARING and not sees(request.user, Visibility.CURATORS):
        raise Http404
    return dataset


@require_safe
def dataset_file(request: HttpRequest, slug: str, name: str) -> HttpResponseBase:
    """The offered file's bytes; 404 for what is not offered to this visitor, whether it exists or not."""
    dataset = visible_dataset(request, slug)
    file = find_file(dataset, request.user, name)
    if file is None:
        raise Http404
    if is_sealed(dataset, file) and isinstance(request.user, User):
        with audit.acting(request.user):
            audit.record("read hidden queries", f"{dataset.slug}: {file.name}", dataset=dataset)
    kind = "application/gzip" if name.endswith(".gz") else "application/octet-stream"
    public = dataset.queries_visibility == dataset.documents_visibility == Visibility.PUBLIC

    def send() -> HttpResponseBase:
        return FileResponse(open_file(file), as_attachment=True, filename=file.name, content_type=kind)

    return attachment(request, file.sha256, send, public=public)


@require_safe
def favicon(request: HttpRequest) -> HttpResponseBase:
    """Where the mark is, for browsers and tools that ask for it under this name whatever a page says."""
    return redirect(static("img/mark.svg"))


def attachment(
    request: HttpRequest, sha256: str, send: Callable[[], HttpResponseBase], *, public: bool
) -> HttpResponseBase:
    """What `send` gives, or 304 to who has the content already, with headers that keep it from being a page.

    Shared caches may keep what is `public`; everybody asks again before using what they keep.
    """
    etag = f'"{sha256}"'
    known = etag in request.headers.get("If-None-Match", "")
    response = HttpResponseNotModified() if known else send()
    response.headers["ETag"] = etag
    response.headers["Content-Security-Policy"] = "sandbox; default-src 'none'"
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Cache-Control"] = "no-cache" if public else "private, no-cache"
    return response
