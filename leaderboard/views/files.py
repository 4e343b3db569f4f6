"""Downloads of what a dataset offers: always as an attachment, never as a page."""

from __future__ import annotations

from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_safe

from leaderboard.core import audit
from leaderboard.core.http.downloads import send_stored, send_unless_unchanged
from leaderboard.core.permissions import may_see_dataset
from leaderboard.core.storage.store import Area
from leaderboard.datasets.files import find_file, is_sealed, keeping_out
from leaderboard.models import Dataset, User
from leaderboard.models.datasets import Visibility


def visible_dataset(request: HttpRequest, slug: str) -> Dataset:
    """The dataset, if it has a page for this visitor. Raises Http404."""
    datasets = Dataset.objects.select_related("current_version", "current_qrels")
    dataset = get_object_or_404(datasets, slug=slug)
    if not may_see_dataset(request.user, dataset):
        raise Http404
    return dataset


@require_safe
def dataset_file(request: HttpRequest, slug: str, name: str) -> HttpResponseBase:
    """The offered file's bytes; 404 for what is not offered to this visitor, whether it exists or not.

    403, whatever the name, for whoever has yet to accept the dataset's agreement.
    """
    dataset = visible_dataset(request, slug)
    if due := keeping_out(dataset, request.user):
        return render(request, "leaderboard/agreement_required.html", {"due": due[0]}, status=403)
    file = find_file(dataset, request.user, name)
    if file is None:
        raise Http404
    if is_sealed(dataset, file) and isinstance(request.user, User):
        with audit.acting(request.user):
            audit.record("read hidden queries", f"{dataset.slug}: {file.name}", dataset=dataset)
    kind = "application/gzip" if name.endswith(".gz") else "application/octet-stream"
    public = dataset.queries_visibility == dataset.documents_visibility == Visibility.PUBLIC

    def send() -> HttpResponseBase:
        return send_stored(Area.FILES, file.sha256, file.name, kind)

    return send_unless_unchanged(request, file.sha256, send, public=public)
