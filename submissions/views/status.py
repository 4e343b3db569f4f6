"""Views of the public status page and of metrics for Prometheus. `/healthz` and `/readyz` are separate."""

import hmac
from collections.abc import Iterator

from django.conf import settings
from django.db.models import Count, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from leaderboard.core.cache import metrics as cache_metrics
from leaderboard.core.http.query_parameters import reads
from leaderboard.core.permissions import may_operate
from leaderboard.models import Entry
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
    """Show which parts of the site work, the queues, and the latest public result."""
    queues = {queue.name: queue for queue in job_queues()}
    parts = [
        (_("Pages and results"), True, ""),  # without the database, this page would not load
        (_("Message broker"), broker_answers(), _("Pages load and jobs start more slowly than usual.")),
        (_("Uploads"), disk_state() == "ok", _("The disk is full. Uploads are refused until there is space.")),
        (_("Scoring"), queues[Job.Queue.SCORE].workers > 0, _("No worker is online. Submissions wait until one is.")),
    ]
    is_stuck = any(queue.waiting and queue.problem for queue in queues.values())
    context = {
        "section": "status",
        "parts": parts,
        "queues": [(label, queues[name]) for name, label in QUEUES.items()],
        "works": all(available for _name, available, _note in parts) and not is_stuck,
        "idle_queues": [label for name, label in QUEUES.items() if not queues[name].workers],
        "newest": Entry.objects.public().select_related("system", "dataset").order_by("-published_at").first(),
    }
    return render(request, "submissions/status.html", context)


@require_safe
@never_cache
@reads("*")
def metrics(request: HttpRequest) -> HttpResponse:
    """Return all metrics in Prometheus' text format for operators and holders of METRICS_TOKEN; 404 for others."""
    token, authorization = settings.METRICS_TOKEN, request.headers.get("Authorization", "")
    has_token = bool(token) and hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode())
    if not has_token and not may_operate(request.user):
        return HttpResponse("Not found\n", status=404, content_type="text/plain; charset=utf-8")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(SiteCollector())
    return HttpResponse(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)


class SiteCollector(Collector):
    """Collector of metrics from the database and the cache."""

    def describe(self) -> Iterator[Metric]:
        return iter(())

    def collect(self) -> Iterator[Metric]:
        """Yield metrics of queues, claimed and ended jobs, workers, stages of jobs, and cached pages."""
        depth = GaugeMetricFamily("runboard_queue_jobs", "Number of jobs waiting for a worker.", labels=["queue"])
        age = GaugeMetricFamily("runboard_queue_oldest_seconds", "Waiting time of the oldest job.", labels=["queue"])
        for queue in job_queues():
            depth.add_metric([queue.name], queue.waiting)
            age.add_metric([queue.name], queue.oldest.total_seconds() if queue.oldest else 0.0)
        leased_jobs = Job.objects.exclude(state__in=TERMINAL).filter(lease_expires_at__isnull=False)
        claimed_jobs = _count_jobs(
            leased_jobs, "runboard_jobs_claimed", "Number of jobs claimed by workers.", queue="queue", state="state"
        )
        # This is a gauge, because withdrawn results are no longer "done".
        ended_jobs = _count_jobs(
            Job.objects.filter(state__in=TERMINAL),
            "runboard_jobs_ended",
            "Number of ended jobs, by current state and error code.",
            kind="kind",
            state="state",
            code="error_code",
        )
        workers = GaugeMetricFamily(
            "runboard_worker_heartbeat_age_seconds",
            "Seconds since the last heartbeat of the worker.",
            labels=["worker", "queues", "hardware_class", "version"],
        )
        now = Worker.objects.database_now()
        for worker in Worker.objects.order_by("name"):
            labels = [worker.name, ",".join(worker.queues), worker.hardware_class, worker.version]
            workers.add_metric(labels, (now - worker.seen_at).total_seconds())
        stages = HistogramMetricFamily(
            "runboard_job_stage_seconds", "Time that jobs spent in each stage.", labels=["kind", "stage"]
        )
        for kind, stage, limits, count, seconds in histograms():
            buckets = [(str(limit), float(number)) for limit, number in limits]
            stages.add_metric([kind, stage], [*buckets, ("+Inf", float(count))], seconds)
        pages = CounterMetricFamily(
            "runboard_pages",
            "Board pages, by source: process cache (own), shared cache, rendered, or not cacheable.",
            labels=["outcome"],
        )
        for outcome, number in cache_metrics.totals().items():
            pages.add_metric([outcome], number)
        yield from (depth, age, claimed_jobs, ended_jobs, workers, stages, pages)


def _count_jobs(jobs: QuerySet[Job], name: str, description: str, **labels: str) -> Metric:
    """Return a gauge with the number of jobs for each combination of labels. `labels` maps labels to columns."""
    family = GaugeMetricFamily(name, description, labels=list(labels))
    for *values, number in jobs.order_by().values_list(*labels.values()).annotate(Count("pk")):
        family.add_metric(values, number)
    return family
