"""What is stored of a person, as a download; and closing the account."""

from __future__ import annotations

from allauth.account.decorators import reauthentication_required
from django.contrib import messages
from django.contrib.auth import logout
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from submissions.accounts.permissions import personal_page, signed_in
from submissions.accounts.personal_data import check_can_close, close_account, personal_data
from submissions.core.errors import ChangeRefused


@personal_page("GET", "HEAD")
@reauthentication_required
def download(request: HttpRequest) -> HttpResponse:
    """The zip, to who has just shown who they are."""
    headers = {"Content-Disposition": 'attachment; filename="account.zip"'}
    return HttpResponse(personal_data(signed_in(request)), content_type="application/zip", headers=headers)


@personal_page("GET", "HEAD", "POST")
@reauthentication_required
def close(request: HttpRequest) -> HttpResponse:
    """Say what goes and what stays; then do it, for who has typed the address of the account."""
    person = signed_in(request)
    refused = ""
    try:
        check_can_close(person)
        if request.method == "POST":
            if request.POST.get("email", "").strip().lower() != person.email:
                raise ChangeRefused("Type the e-mail address of this account to confirm.")
            close_account(person)
            logout(request)
            messages.success(request, _("The account is closed."))
            return redirect("home")
    except ChangeRefused as error:
        refused = str(error)
    status = 400 if refused and request.method == "POST" else 200
    return render(request, "submissions/close_account.html", {"refused": refused}, status=status)
