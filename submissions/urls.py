"""URLs of submissions, accounts, teams, and the write API."""

from collections.abc import Callable, Iterable

from allauth import urls as allauth
from allauth.decorators import rate_limit
from django.http import HttpResponseBase
from django.urls import URLPattern, URLResolver, include, path
from django.views.decorators.cache import never_cache
from django.views.generic import RedirectView

from leaderboard.views.datasets import dataset_file
from submissions.accounts.adapter import has_passwords, has_services, serve_if
from submissions.accounts.authentication import takes_tokens
from submissions.api import notifications as notices
from submissions.api import uploads
from submissions.api import views as api
from submissions.api.model_reference import ModelsView
from submissions.views import accounts as account_views
from submissions.views import agreements, submissions
from submissions.views import checkpoints as model_views
from submissions.views import notifications as notification_views
from submissions.views.checkpoints import models
from submissions.views.status import metrics, status
from submissions.views.submit_page import submit

#: allauth's pages without its list of sessions, which we replace by one that can end single sessions, and without
#: legacy URLs.
_accounts = [url for url in allauth.urlpatterns if not str(url.pattern).startswith(("sessions/", "social/"))]


#: URL names whose GET creates a session, with the name of their limit in ACCOUNT_RATE_LIMITS.
_LIMITED = {"account_reset_password_from_key": "open_reset_link", "mfa_login_webauthn": "passkey"}
#: Views that replace allauth's views, by URL name.
_REPLACED = {
    "mfa_list_webauthn": RedirectView.as_view(pattern_name="mfa_index"),
    "mfa_remove_webauthn": account_views.RemovePasskeyView.as_view(),
}


#: Prefixes of the URL names of allauth's pages for sign-up and sign-in without another service.
_PASSWORD_PAGES = (
    "account_signup",
    "account_reset_password",
    "account_change_password",
    "account_set_password",
    "mfa_login",
)


def _limited(pattern: URLPattern) -> Callable[..., HttpResponseBase]:
    name = pattern.name or ""
    view = _REPLACED.get(name, pattern.callback)
    if name.startswith(("socialaccount", "github", "openid_connect")):
        return serve_if(has_services, view)
    if action := _LIMITED.get(name):
        view = rate_limit(action=action, limit_get=True)(view)
    if name == "account_login":
        return serve_if(lambda request: request.method != "POST" or has_passwords(request), view)
    return serve_if(has_passwords, view) if name.startswith(_PASSWORD_PAGES) else view


def _never_cached(patterns: Iterable[URLPattern | URLResolver]) -> list[URLPattern | URLResolver]:
    """Return the same patterns with caching disabled, since the pages show data of the signed-in user."""
    return [
        URLPattern(pattern.pattern, never_cache(_limited(pattern)), pattern.default_args, pattern.name)
        if isinstance(pattern, URLPattern)
        else URLResolver(pattern.pattern, _never_cached(pattern.url_patterns), pattern.default_kwargs)
        for pattern in patterns
    ]


#: Prefixes of the URLs of one submission, team, and webhook.
_SUBMISSION, _TEAM = "submissions/<slug:identifier>/", "teams/<slug:slug>/"
_WEBHOOK = f"{_TEAM}webhooks/<int:identifier>/"

pages = [
    path("datasets/<slug:slug>/files/<str:name>", takes_tokens(dataset_file), name="dataset-file"),
    path("datasets/<slug:slug>/agreement/", agreements.dataset_agreement, name="dataset-agreement"),
    path("rounds/<slug:slug>/agreement/", agreements.round_agreement, name="round-agreement"),
    path("submit/", submit, name="submit"),
    path("submit/model/", model_views.submit_model, name="submit-model"),
    path("models/", models, name="models"),
    path("status/", status, name="status"),
    path("submissions/", submissions.submissions, name="submissions"),
    path(_SUBMISSION, submissions.submission, name="submission"),
    path(f"{_SUBMISSION}progress/", submissions.progress, name="submission-progress"),
    path(f"{_SUBMISSION}runs/<slug:dataset>/", submissions.run, name="submission-run"),
    path(f"{_SUBMISSION}cancel/", submissions.cancel, name="submission-cancel"),
    path(f"{_SUBMISSION}retry/", submissions.retry, name="submission-retry"),
    path(f"{_SUBMISSION}withdraw/", submissions.withdraw, name="submission-withdraw"),
    path(f"{_SUBMISSION}visibility/", submissions.visibility, name="submission-visibility"),
    path(f"{_SUBMISSION}reusable/", submissions.reusable, name="submission-reusable"),
    path(f"{_SUBMISSION}priority/", submissions.priority, name="submission-priority"),
    path("systems/<slug:slug>/edit/", submissions.edit_system, name="system-edit"),
    path("systems/<slug:slug>/anonymity/", submissions.anonymity, name="system-anonymity"),
    path("systems/<slug:slug>/challenge/", submissions.challenge, name="system-challenge"),
    path("systems/<slug:slug>/challenge/<int:key>/", submissions.retract, name="challenge-retract"),
    path("account/", account_views.account, name="account"),
    path("account/profile/", account_views.save_profile, name="account-profile"),
    path("account/tokens/", account_views.create_token, name="account-token-create"),
    path("account/tokens/revoke/", account_views.delete_token, name="account-token-revoke"),
    path("account/uploads/", account_views.uploads, name="account-uploads"),
    path("account/uploads/delete/", account_views.delete_upload, name="account-upload-delete"),
    path("account/sessions/", account_views.sessions, name="account-sessions"),
    path("account/sessions/end/", account_views.sign_out_elsewhere, name="account-session-end"),
    path("account/data/", account_views.download, name="account-data"),
    path("account/close/", account_views.close, name="account-close"),
    path("account/teams/", account_views.new_team, name="team-new"),
    path(f"{_TEAM}manage/", account_views.manage, name="team-manage"),
    path(f"{_TEAM}manage/name/", account_views.rename, name="team-rename"),
    path(f"{_TEAM}manage/invitations/", account_views.invite, name="team-invite"),
    path(f"{_TEAM}manage/invitations/<int:key>/", account_views.change_invitation, name="team-invitation"),
    path(f"{_TEAM}manage/members/<int:key>/", account_views.change_member, name="team-member"),
    path(f"{_TEAM}manage/leave/", account_views.leave, name="team-leave"),
    path("invitations/<slug:secret>/", account_views.invitation, name="invitation"),
    path("inbox/", notification_views.inbox, name="inbox"),
    path("inbox/read/", notification_views.read, name="inbox-read"),
    path("inbox/preferences/", notification_views.preferences, name="notice-preferences"),
    path(f"{_TEAM}webhooks/", notification_views.webhooks, name="webhooks"),
    path(_WEBHOOK, notification_views.change_webhook, name="webhook-change"),
    path("account/", include(_never_cached(_accounts))),
]

api_calls = [
    path("check/", api.CheckView.as_view(), name="api-check"),
    path("models/", ModelsView.as_view(), name="api-models"),
    path("submissions/", api.SubmissionsView.as_view(), name="api-submissions"),
    path(_SUBMISSION, api.SubmissionView.as_view(), name="api-submission"),
    path(f"{_SUBMISSION}cancel/", api.CancelView.as_view(), name="api-submission-cancel"),
    path(f"{_SUBMISSION}withdraw/", api.WithdrawView.as_view(), name="api-submission-withdraw"),
    path(f"{_SUBMISSION}visibility/", api.VisibilityView.as_view(), name="api-submission-visibility"),
    path(f"{_SUBMISSION}reusable/", api.ReusableView.as_view(), name="api-submission-reusable"),
    path("uploads/", uploads.UploadsView.as_view(), name="api-uploads"),
    path("uploads/<slug:identifier>/", uploads.UploadView.as_view(), name="api-upload"),
    path("quotas/", api.QuotasView.as_view(), name="api-quotas"),
    path("systems/<slug:slug>/challenges/", api.ChallengesView.as_view(), name="api-system-challenges"),
    path("notices/", notices.NoticesView.as_view(), name="api-notices"),
    path("notices/read/", notices.ReadView.as_view(), name="api-notices-read"),
    path(f"{_TEAM}webhooks/", notices.WebhooksView.as_view(), name="api-webhooks"),
    path(_WEBHOOK, notices.WebhookView.as_view(), name="api-webhook"),
    path(f"{_WEBHOOK}rotate/", notices.RotateView.as_view(), name="api-webhook-rotate"),
    path(f"{_WEBHOOK}test/", notices.TestView.as_view(), name="api-webhook-test"),
    path(f"{_SUBMISSION}priority/", api.PriorityView.as_view(), name="api-submission-priority"),
]

urlpatterns = [
    *pages,
    path("metrics", metrics, name="metrics"),
    path("api/v1/", include(api_calls)),
]
