"""Versions and judgements: what is known of them to look at, and the one logged way to read judgements."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import Http404, HttpRequest, HttpResponseBase
from django.shortcuts import get_object_or_404
from django.urls import URLPattern, path, reverse

from leaderboard.admin.base import ReadOnlyAdmin, curator
from leaderboard.admin.pages import Crumb, require
from leaderboard.core.audit import acting
from leaderboard.core.http.downloads import send_private
from leaderboard.datasets.files import seals_queries
from leaderboard.datasets.qrels import recorded_qrels_path
from leaderboard.judgements.disclosure import may_see_counts
from leaderboard.models import DatasetVersion, Qrels

RIGHT = "leaderboard.read_qrels"


@admin.register(DatasetVersion)
class DatasetVersionAdmin(ReadOnlyAdmin):
    """Versions, as they were imported."""

    list_display = ("dataset", "number", "label", "created_at")
    list_filter = (("dataset", admin.RelatedOnlyFieldListFilter),)
    list_select_related = ("dataset",)
    search_fields = ("dataset__name", "dataset__slug", "label")

    def get_fields(self, request: HttpRequest, obj: DatasetVersion | None = None) -> Any:
        """Checksums of hidden queries, by which guesses could be tried out, go with the right to read them."""
        fields = super().get_fields(request, obj)
        if obj is None or not seals_queries(obj.dataset) or may_see_counts(obj.dataset, request.user):
            return fields
        return [name for name in fields if name != "statistics" and not str(name).endswith("_sha256")]


@admin.register(Qrels)
class QrelsAdmin(ReadOnlyAdmin):
    """What is known of judgements. Reading them takes a right of its own, and each reading is recorded."""

    list_display = ("version", "split", "number", "note", "created_at")
    list_filter = ("version__dataset", "split")
    list_select_related = ("version__dataset",)
    search_fields = ("version__dataset__name", "version__dataset__slug", "note")
    fields = ("version", "split", "number", "note", "made_from", "sha256", "statistics", "created_at")

    def get_fields(self, request: HttpRequest, obj: Qrels | None = None) -> Any:
        """Counts of hidden judgements, by grade, tell what a merge changed, and the checksum whether a guess is the
        file: they go with the right to read.
        """
        fields = super().get_fields(request, obj)
        if obj is None or may_see_counts(obj.version.dataset, request.user):
            return fields
        return [name for name in fields if name not in ("statistics", "sha256")]

    def tools(self, request: HttpRequest, obj: Qrels) -> list[Crumb]:
        """The way to the judgements, for whoever may go it."""
        if not request.user.has_perm(RIGHT):
            return []
        return [("Read the judgements (recorded)", reverse("admin:leaderboard_qrels_read", args=[obj.pk]))]

    def get_urls(self) -> list[URLPattern]:
        """The admin's own addresses, and that of the judgements."""
        view = self.admin_site.admin_view(self.read_view)
        return [path("<int:pk>/read/", view, name="leaderboard_qrels_read"), *super().get_urls()]

    def read_view(self, request: HttpRequest, pk: int) -> HttpResponseBase:
        """The judgements as a file, after the reading is recorded; 403 for whoever may not."""
        require(request, RIGHT)
        qrels = get_object_or_404(Qrels.objects.select_related("version__dataset"), pk=pk)
        if request.method != "GET":
            raise Http404
        with acting(curator(request), request.GET.get("why", "").strip()[:300]):
            file = recorded_qrels_path(qrels)
        name = f"{qrels.version.dataset.slug}-{qrels.split}-{qrels.number}.qrels"
        return send_private(file, name, "text/plain; charset=utf-8")
