"""The page for models. A door: translate in, one domain call, translate out."""

from __future__ import annotations

from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from submissions.accounts.throttling import CheckThrottle, SubmitThrottle, seconds_to_wait
from submissions.checkpoints.concurrency import Busy
from submissions.checkpoints.service import check_checkpoint
from submissions.core.errors import Refused
from submissions.intake.models.intake import accept_model, kinds_of
from submissions.uploads.request_size import refuse_oversize
from submissions.views.model_page import ModelPage

TEMPLATE = "submissions/submit_model.html"


@login_required
@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def submit_model(request: HttpRequest) -> HttpResponse:
    """The form of an engine (`?engine=`); the verdict on a checkpoint (`action=check`); or a submission."""
    page = ModelPage(request)
    if request.method != "POST":
        return render(request, TEMPLATE, page.context())
    if wait := seconds_to_wait(CheckThrottle() if page.checking else SubmitThrottle(), request):
        return render(request, TEMPLATE, page.context(slow_down=wait), status=429)
    try:
        refuse_oversize(request)  # first: what a request that was cut off seems to say is misleading
        if page.checking:
            report = check_checkpoint(page.archive_to_check(), kinds_of(page.engine))
            return render(request, TEMPLATE, page.context(report=report, model=report.model))
        if not page.is_valid():
            return render(request, TEMPLATE, page.context(), status=400)
        accepted = accept_model(submitter=page.person, **page.submission())
        page.name_team()
    except Busy as busy:
        answer = render(request, TEMPLATE, page.context(refusal=busy), status=429)
        answer["Retry-After"] = str(busy.seconds)
        return answer
    except Refused as refusal:
        return render(request, TEMPLATE, page.context(refusal=refusal), status=400)
    return redirect(accepted)
