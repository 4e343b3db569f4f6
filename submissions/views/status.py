"""The status page for people, and metrics for Prometheus. `/healthz` and `/readyz` report to machines."""

import hmac
from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from leaderboard.core.cache import metrics as cache_metrics
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.permissions import may_operate
from leaderboard.models import Entry, EntryQuerySet
from leaderboard.views.health import broker_answers, disk_state
from submissions.models import TERMINAL, Job, Worker
from submissions.queue.lease import histograms
from submissions.status.overview import job_queues

QUEUES = {
    Job.Queue.SCORE.value: _("Runs to score"),
    Job.Queue.CPU.value: _("Models on CPUs"),
    Job.Queue.GPU.value: _("Models on GPUs"),
}


@require_safe
@never_cache
def status(request: HttpRequest) -> HttpResponse:
    """Show which parts of the site work, the queues, and the newest public result."""
    queues = {queue.name: queue for queue in job_queues()}
    room, scorers = disk_state() == "ok", queues[Job.Queue.SCORE].workers > 0
    parts = [
        (_("Pages and results"), True, ""),  # the database answers, or there would be no page
        (_("Message broker"), broker_answers(), _("Pages load and jobs start more slowly than usual.")),
        (_("Uploads"), room, _("The disk is full. Uploads are refused until there is space.")),
        (_("Scoring"), scorers, _("No worker is online. Submissions wait until one is.")),
    ]
    stuck = any(queue.problem for queue in queues.values())
    public = EntryQuerySet(Entry).public().select_related("system", "dataset")
    context = {
        "section": "status",
        "parts": parts,
        "queues": [(label, queues[name]) for name, label in QUEUES.items()],
        "works": all(available for _name, available, _note in parts) and not stuck,
        "newest": public.order_by("-published_at").first(),
    }
    return render(request, "submissions/status.html", context)


@require_safe
@never_cache
@reads("*")
def metrics(request: HttpRequest) -> HttpResponse:
    """All metrics in Prometheus' text format, for staff and for whoever has METRICS_TOKEN; 404 for others."""
    token, sent = settings.METRICS_TOKEN, request.headers.get("Authorization", "")
    has_token = bool(token) and hmac.compare_digest(sent.encode(), f"Bearer {token}".encode())
    if not has_token and not may_operate(request.user):
        return HttpResponse("Not found\n", status=404, content_type="text/plain; charset=utf-8")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Rows())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class Rows(Collector):
    """The metrics, each from a question to the database or the cache."""

    def describe(self) -> Iterator[Metric]:
        """Nothing in advance: every scrape asks anew."""
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """All of them."""
        yield from _queues()
        yield _under_way()
        yield _ended()
        yield from _workers()
        yield _stages()
        yield _pages()


def _queues() -> Iterator[Metric]:
    depth = GaugeMetricFamily("runboard_queue_jobs", "Jobs that wait for a worker.", labels=["queue"])
    age = GaugeMetricFamily(
        "runboard_queue_oldest_seconds", "How long the oldest of them has waited.", labels=["queue"]
    )
    for row in job_queues():
        depth.add_metric([row.name], row.waiting)
        age.add_metric([row.name], row.oldest.total_seconds() if row.oldest else 0.0)
    yield depth
    yield age


def _under_way() -> Metric:
    family = GaugeMetricFamily(
        "runboard_jobs_claimed", "Jobs that a worker holds.", labels=["queue", "state"]
    )
    held = Job.objects.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False).order_by()
    for row in held.values("queue", "state").annotate(jobs=Count("pk")):
        family.add_metric([row["queue"], row["state"]], row["jobs"])
    return family


def _ended() -> Metric:
    # No counter: a result that is withdrawn is no longer "done".
    family = GaugeMetricFamily(
        "runboard_jobs_ended",
        "Jobs that have ended, by what they are now; the code says why where it was not well.",
        labels=["kind", "state", "code"],
    )
    ended = Job.objects.filter(state__in=TERMINAL).order_by()
    for row in ended.values("kind", "state", "error_code").annotate(jobs=Count("pk")):
        family.add_metric([row["kind"], row["state"], row["error_code"]], row["jobs"])
    return family


def _workers() -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "runboard_worker_heartbeat_age_seconds",
        "Seconds since the worker was heard of.",
        labels=["worker", "queues", "hardware_class", "version"],
    )
    now = Worker.objects.database_now()
    for worker in Worker.objects.order_by("name"):
        labels = [worker.name, ",".join(worker.queues), worker.hardware_class, worker.version]
        family.add_metric(labels, (now - worker.seen_at).total_seconds())
    yield family


def _stages() -> Metric:
    family = HistogramMetricFamily(
        "runboard_job_stage_seconds", "How long jobs were in each stage.", labels=["kind", "stage"]
    )
    for kind, stage, limits, count, seconds in histograms():
        buckets = [(str(limit), float(number)) for limit, number in limits]
        family.add_metric([kind, stage], [*buckets, ("+Inf", float(count))], seconds)
    return family


def _pages() -> Metric:
    family = CounterMetricFamily(
        "runboard_pages",
        "Pages of boards: at hand in the process (own), in the shared cache, made, or not of a kind that is kept.",
        labels=["outcome"],
    )
    for outcome, number in cache_metrics.totals().items():
        family.add_metric([outcome], number)
    return family
