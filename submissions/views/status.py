"""The status page for people; `/healthz` and `/readyz` report to machines."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_safe

from leaderboard.models import Entry
from leaderboard.models.results import EntryQuerySet
from leaderboard.views.health import broker_answers, disk_state
from submissions.models import Job
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
