"""A person's own files that came in pieces, or came in part: what is here, and throwing it away."""

from django.contrib import messages
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from submissions.accounts.permissions import signed_in
from submissions.core.errors import Refused
from submissions.uploads import service
from submissions.uploads.storage import UploadInUse


@login_required
@never_cache
@require_safe
def uploads(request: HttpRequest) -> HttpResponse:
    """List the person's uploads, and how much room there is."""
    kept = list(service.uploads_of(signed_in(request)))
    context = {
        "uploads": kept,
        "used": sum(each.length for each in kept),
        "allowed": service.UPLOAD_BYTES_PER_PERSON,
        "most": service.UPLOADS_PER_PERSON,
        "hours": service.UPLOAD_LIFETIME_SECONDS // 3600,
    }
    return render(request, "submissions/uploads.html", context)


@login_required
@require_POST
def delete(request: HttpRequest) -> HttpResponse:
    """Throw one away, whole or not."""
    person = signed_in(request)
    try:
        upload = service.find_upload(person, request.POST.get("upload", ""))
        if upload is not None:
            service.discard_upload(upload)
    except Refused:
        upload = None
    except UploadInUse:
        messages.error(
            request,
            _(
                "That file is just being sent, or taken by a submission or a backup of the site. Try again later."
            ),
        )
        return redirect("account-uploads")
    name = upload.file_name or "The file" if upload else ""
    messages.success(
        request,
        _("{name} is deleted.").format(name=name)
        if name
        else _("There was no such file; it may have expired."),
    )
    return redirect("account-uploads")
