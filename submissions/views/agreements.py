"""Views that show the agreement of a dataset or a round and record acceptances."""

from typing import Any

from django.contrib import messages
from django.contrib.auth.views import redirect_to_login
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from leaderboard.core.permissions import may_see_dataset, pending_agreements
from leaderboard.core.text.numbers import parse_number
from leaderboard.models import Acceptance, Agreement, Round, User
from submissions.accounts.approval import AgreementChanged, accept_agreement


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def dataset_agreement(request: HttpRequest, slug: str) -> HttpResponse:
    agreement = get_object_or_404(Agreement.objects.select_related("dataset"), dataset__slug=slug, in_force=True)
    if agreement.dataset is None or not may_see_dataset(request.user, agreement.dataset):
        raise Http404
    return _agreement_page(request, agreement)


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def round_agreement(request: HttpRequest, slug: str) -> HttpResponse:
    row = get_object_or_404(Round.objects.listed(), slug=slug)
    return _agreement_page(request, get_object_or_404(Agreement, round=row, in_force=True))


def _agreement_page(request: HttpRequest, agreement: Agreement) -> HttpResponse:
    """Show the agreement and whether the visitor accepted it. A POST records the user's acceptance.

    If the agreement has changed or the box is not ticked, the status is 409 and the page states the reason. Anonymous
    visitors are asked to sign in before they can accept.
    """
    refusal = ""
    if request.method == "POST":
        if not isinstance(request.user, User):
            return redirect_to_login(request.get_full_path())
        version = request.POST.get("version", "")
        try:
            if not request.POST.get("accept"):
                raise AgreementChanged(_("Tick the box to accept the agreement."))
            accept_agreement(request.user, agreement, parse_number(version) or 0)
        except AgreementChanged as error:
            refusal = str(error)
            agreement.refresh_from_db()
        else:
            messages.success(request, _("Your acceptance was recorded."))
            return redirect(agreement)
    versions: Any = Agreement.history
    person = request.user
    datasets, rounds = ([key] if key else [] for key in (agreement.dataset_id, agreement.round_id))
    missing_acceptances = pending_agreements(person, datasets=datasets, rounds=rounds)
    acceptance = Acceptance.objects.filter(agreement=agreement, person=person.pk, version=agreement.version).first()
    context = {
        "section": "leaderboards" if agreement.dataset_id else "rounds",
        "agreement": agreement,
        "subject": agreement.subject,
        "since": versions.filter(id=agreement.pk, version=agreement.version).order_by("history_id").first(),
        "accepted": acceptance,
        "waits": bool(acceptance and missing_acceptances),
        "refused": refusal,
    }
    return render(request, "submissions/agreement.html", context, status=409 if refusal else 200)
