"""Who gets what at every door of the site: the table that the walk is held against.

A row says for GET and for POST what each of `PEOPLE` gets, in their order, a letter each:

    .  let in (what was sent may be refused for what is in it)
    >  to the page that signs in
    1 3 4 5  401, 403, 404, 405

HEAD is answered as GET is, unless a row says otherwise. Pages answer 405 to everything else; calls of the API say for
themselves. The owner's team has what stands in an address, unless a name in brackets after the route's says otherwise;
a curator has what the group of curators has, and staff has no right at all; both and root have shown the second factor
that is asked of them. Two more people follow from these: `derived`. Whoever adds an address adds its row here.
"""

from __future__ import annotations

from typing import NamedTuple

PEOPLE = ("anonymous", "other", "owner", "teammate", "curator", "staff", "root", "expired")

ALL, NO, NEVER = "........", "55555555", "44444444"
#: Whoever is signed in, and the same where only POST is taken.
SIGNED, SIGNED_NO = ">......>", ">555555>"


class Row(NamedTuple):
    """Letters by method; `others` for what is not as the rest: calls of the API that take more than GET and POST."""

    get: str
    post: str = NO
    others: dict[str, str] = {}

    def of(self, method: str, *, api: bool) -> str:
        """What each of the people gets."""
        own = {"GET": self.get, "HEAD": self.get, "POST": self.post, **self.others}
        if method in own:
            return own[method]
        if not api:
            return NO
        # Who is not known to a call that asks for somebody is not told which methods it takes.
        strict = "1" in (self.get[0], self.post[0])
        let_in = "." if method == "OPTIONS" else "5"
        return ("1" if strict else let_in) + let_in * 6 + "1"


def _each(row: Row, *names: str) -> dict[str, Row]:
    return dict.fromkeys(names, row)


_ENDINGS = ("csv", "json", "md", "tex", "bib")

_PUBLIC = {
    **_each(
        Row(ALL),
        "home", "datasets", "dataset", "queries", "query", "benchmarks", "benchmark", "compare",
        "system", "system_badge", "system_badge_data", "system_mteb", "system_eval_results", "system_bibtex",
        "system_every_eval_ever", "dataset_croissant", "team", "rounds", "round", "search", "figures", "figure",
        "figure_json", "news", "news_atom", "dataset_atom", "benchmark_atom", "dataset_share", "benchmark_share",
        "docs", "doc", "privacy", "measures", "efficiency", "formats", "models", "rolling_benchmark",
        "dataset_at", "favicon", "status", "robots-txt", "healthz", "readyz", "api-docs", "api-docs-section",
        *(f"dataset_{ending}" for ending in _ENDINGS),
        *(f"benchmark_{ending}" for ending in _ENDINGS),
        *(f"dataset_at_{ending}" for ending in _ENDINGS),
    ),
    # Nothing is there yet, for anybody: no author of a paper, no decided rescore, no benchmark as it was then.
    **_each(
        Row(NEVER), "author", "rescore", "rescore-csv", "benchmark_at",
        *(f"benchmark_at_{ending}" for ending in _ENDINGS),
    ),
    "dataset (unseen)": Row(NEVER),
    # The operator has set no contact, and written no terms.
    **_each(Row(NEVER), "security-txt", "terms", "contact", "site-css", "site-logo"),
    "metrics": Row("4444...4"),
    # Hidden queries: for whoever may read hidden judgements, which curators may not by being such.
    "dataset-file (sealed)": Row("444444.1", "55555551"),
    "dataset-file": Row(".......1", "55555551"),
    **_each(Row(ALL, SIGNED), "dataset-agreement", "round-agreement"),
    **_each(Row(">4..444>"), "round_topics", "round_topics_json", "round_topics_csv"),
}  # fmt: skip

_SUBMISSIONS = {
    "submit": Row(ALL, SIGNED),  # Visitors may check a file, but this test sends none.
    "submit-model": Row(SIGNED, SIGNED),
    "submissions": Row(SIGNED, SIGNED_NO),
    **_each(Row("44...4.4"), "submission", "submission-progress"),
    **_each(Row(ALL), "submission (public)", "submission-progress (public)"),
    "submission-run": Row("44..4441"),
    "submission-run (public)": Row("44...4.1"),
    **_each(
        Row(SIGNED_NO, ">4...4.>"),
        "submission-cancel", "submission-withdraw", "submission-visibility", "submission-reusable",
        "submission-priority", "submission-retry",
    ),
    **_each(
        Row(SIGNED_NO, ">3...3.>"),
        "submission-cancel (public)", "submission-withdraw (public)", "submission-visibility (public)",
        "submission-reusable (public)", "submission-priority (public)", "submission-retry (public)",
    ),
    **_each(Row(">4...4.>", ">4...4.>"), "system-edit", "system-anonymity"),
    "system-challenge": Row(SIGNED, SIGNED),
    "challenge-retract": Row(SIGNED_NO, ">.44444>"),  # it is the other user's
}  # fmt: skip

_PEOPLE = {
    "account": Row(SIGNED, SIGNED_NO),
    **_each(
        Row(SIGNED_NO, SIGNED),
        "account-profile", "account-token-revoke", "team-new", "inbox-read",
    ),
    **_each(Row(SIGNED, SIGNED_NO), "inbox", "account-sessions", "account-uploads", "mfa_index", "account-data"),
    # No service has keys here.
    **_each(
        Row(NEVER, NEVER),
        "socialaccount_connections", "socialaccount_signup", "socialaccount_login_cancelled",
        "socialaccount_login_error", "github_login", "github_callback", "openid_connect_login",
        "openid_connect_callback",
    ),
    **_each(Row(SIGNED_NO, SIGNED), "account-session-end", "account-upload-delete"),
    **_each(
        Row(SIGNED, SIGNED),
        "account-token-create", "account-close", "mfa_authenticate", "mfa_reauthenticate", "mfa_activate_totp",
        "mfa_generate_recovery_codes",
    ),
    # Pages that change passkeys first ask for a factor again. The list redirects to the page of all factors.
    "mfa_list_webauthn": Row(ALL, ALL),
    **_each(
        Row(SIGNED, SIGNED),
        "mfa_add_webauthn", "mfa_edit_webauthn", "mfa_remove_webauthn", "mfa_reauthenticate_webauthn",
        "mfa_login_webauthn",
    ),
    # The last three before the expired token have a second factor, and nobody recovery codes.
    "mfa_deactivate_totp": Row(">444...>", ">444...>"),
    "mfa_download_recovery_codes": Row(">444444>", ">444444>"),
    "mfa_view_recovery_codes": Row(">444444>", SIGNED_NO),
    "notice-preferences": Row(SIGNED, SIGNED),
    "team-manage": Row(">4..444>", SIGNED_NO),
    **_each(
        Row(SIGNED_NO, ">4.3444>"), "team-rename", "team-invite", "team-invitation", "team-member"
    ),
    "team-leave": Row(SIGNED_NO, ">4..444>"),
    "invitation": Row(">.33333>", ">.33333>"),  # it is for the other user
    "webhooks": Row(">4.4444>", ">4.4444>"),
    "webhook-change": Row(SIGNED_NO, ">4.4444>"),
    **_each(
        Row(ALL, ALL),
        "account_login", "account_logout", "account_signup", "account_reset_password",
        "account_reset_password_from_key",
    ),
    **_each(
        Row(ALL),
        "account_inactive", "account_email_verification_sent", "account_reset_password_from_key_done",
        "account_reset_password_done",
    ),
    "account_confirm_email": Row(ALL, NEVER),
    **_each(
        Row(SIGNED, SIGNED),
        "account_reauthenticate", "account_email", "account_change_password", "account_set_password",
        "account_confirm_login_code",
    ),
}  # fmt: skip

_READS, _POSTS, _POSTS_NO = "1......1", "1......1", "15555551"
_API = {
    **_each(
        Row(".......1", "55555551"),
        "api-datasets", "api-dataset", "api-dataset-board", "api-dataset-files", "api-benchmarks",
        "api-benchmark-board", "api-system", "api-recipes", "api-search", "api-rounds", "api-round", "api-schema",
        "api-models",
    ),
    "api-dataset (unseen)": Row("44444441", "55555551"),
    "api-dataset-files (unseen)": Row("4444.4.1", "55555551"),
    "api-check": Row("55555551", ".......1"),
    "api-submissions": Row(_READS, _POSTS),
    "api-submission": Row("44...4.1", "55555551"),
    "api-submission (public)": Row(".......1", "55555551"),
    **_each(
        Row(_POSTS_NO, "14...4.1"),
        "api-submission-cancel", "api-submission-withdraw", "api-submission-visibility",
        "api-submission-reusable", "api-submission-priority",
    ),
    **_each(
        Row(_POSTS_NO, "13...3.1"),
        "api-submission-cancel (public)", "api-submission-withdraw (public)",
        "api-submission-visibility (public)", "api-submission-reusable (public)",
        "api-submission-priority (public)",
    ),
    **_each(Row(_READS, _POSTS_NO), "api-quotas", "api-notices"),
    "api-uploads": Row(_READS, _POSTS, {"OPTIONS": ".......1"}),
    # A person's own, not their team's.
    "api-upload": Row(
        "14.44441", _POSTS_NO, {"PATCH": "14.44441", "DELETE": "14.44441", "OPTIONS": ".......1"}
    ),
    "api-system-challenges": Row(".......1", _POSTS, {"OPTIONS": ".......1"}),
    "api-notices-read": Row(_POSTS_NO, _POSTS),
    "api-webhooks": Row("14.44441", "14.44441"),
    "api-webhook": Row("14.44441", _POSTS_NO, {"PATCH": "14.44441", "DELETE": "14.44441"}),
    **_each(Row(_POSTS_NO, "14.44441"), "api-webhook-rotate", "api-webhook-test"),
}  # fmt: skip

# --- the curators' pages

#: Curators and superusers; superusers alone; nobody; any staff.
_CURATORS, _ROOT, _NOBODY, _STAFF = ">>>>.3.>", ">>>>33.>", ">>>>333>", ">>>>...>"
_NOT_TAKEN = ">>>>555>"

#: What curators may do with the rows of each model: add, change, delete. All that is listed they may look at.
_MODELS = {
    "leaderboard_agreement": "ac", "leaderboard_acceptance": "",
    "leaderboard_auditrecord": "", "leaderboard_benchmark": "acd", "leaderboard_challenge": "",
    "leaderboard_dataset": "c", "leaderboard_hardwareclass": "c", "leaderboard_measurement": "",
    "leaderboard_price": "acd", "leaderboard_judgementimport": "c", "leaderboard_team": "c",
    "leaderboard_pool": "c", "leaderboard_datasetversion": "", "leaderboard_qrels": "",
    "leaderboard_rescore": "ac", "leaderboard_entry": "", "leaderboard_round": "a", "leaderboard_source": "acd",
    "leaderboard_topicsource": "ac", "leaderboard_system": "c",
    "submissions_flag": "", "submissions_notice": "", "submissions_webhook": "",
    "submissions_delivery": "", "submissions_quotaexception": "acd", "submissions_quotause": "",
}  # fmt: skip


def _model(name: str, may: str) -> dict[str, Row]:
    """The rows of a model's pages."""
    app, model = name.split("_", 1)
    either = {letter: _CURATORS if letter in may else _NOBODY for letter in "acd"}
    return {
        f"{name}_changelist": Row(_CURATORS, _CURATORS),
        f"{name}_history": Row(_CURATORS, _CURATORS),
        f"{name}_simple_history": Row(_CURATORS, _CURATORS),
        f"{name}_add": Row(either["a"], either["a"]),
        f"{name}_change": Row(_CURATORS, either["c"]),
        f"{name}_delete": Row(either["d"], either["d"]),
        # An old address, which leads to the page.
        f"admin/{app}/{model}/<path:object_id>/": Row(_STAFF, _STAFF),
    }


def _root_model(name: str) -> dict[str, Row]:
    app, model = name.split("_", 1)
    acts = ("changelist", "history", "simple_history", "add", "change", "delete")
    return {
        **_each(Row(_ROOT, _ROOT), *(f"{name}_{act}" for act in acts)),
        f"admin/{app}/{model}/<path:object_id>/": Row(_STAFF, _STAFF),
    }


_ADMIN = {
    **{name: row for model, may in _MODELS.items() for name, row in _model(model, may).items()},
    "leaderboard_team_add": Row(_ROOT, _ROOT),  # with an owner, whom only they choose
    "leaderboard_team_delete": Row(_ROOT, _ROOT),  # and everybody in it with it
    **_root_model("auth_group"),
    **_root_model("account_emailaddress"),
    **_root_model("submissions_switch"),
    "submissions_switch_delete": Row(_NOBODY, _NOBODY),  # what is not there is off, as what is
    "submissions_worker_changelist": Row(_STAFF, _STAFF),  # how the site itself does
    **_root_model("leaderboard_user"),
    **_each(
        Row(_CURATORS, _CURATORS),
        "leaderboard_user_changelist", "leaderboard_user_history", "leaderboard_user_simple_history",
    ),
    "leaderboard_user_change": Row(_CURATORS, _ROOT),
    "leaderboard_user_delete": Row(_NOBODY, _NOBODY),  # accounts are closed, not deleted
    "auth_user_password_change": Row(_ROOT, _ROOT),
    **_each(
        Row(_CURATORS, _CURATORS),
        "leaderboard_dataset_import", "leaderboard_dataset_imported", "leaderboard_dataset_measures",
        "leaderboard_judgementimport_bring",
        "leaderboard_entry_report",
        "leaderboard_pool_draw", "leaderboard_rescore_csv", "leaderboard_rescore_switch",
        "leaderboard_rescore_discard", "leaderboard_rescore_evaluate", "leaderboard_system_merge",
        *(f"leaderboard_{model}_{act}" for act in ("export", "table")
          for model in ("benchmark", "dataset", "hardwareclass", "price", "system")),
    ),
    # It gives the file out, and is asked for by a link: by GET alone, which is recorded. This pool has none yet.
    "leaderboard_qrels_read": Row(_ROOT, ">>>>334>", {"HEAD": ">>>>334>"}),
    "leaderboard_pool_file": Row(">>>>434>", ">>>>434>"),
    "index": Row(_STAFF, _STAFF),
    "app_list": Row(">>>>.4.>", ">>>>.4.>"),
    "login": Row(">333...>", ">333...>"),
    "logout": Row("....555.", ALL),
    **_each(Row(_STAFF, _NOT_TAKEN), "jsi18n", "password_change_done"),
    "password_change": Row(_STAFF, _STAFF),
    "autocomplete": Row(_NOBODY, _NOT_TAKEN),  # for a field of a model: none is named
    **_each(Row(">>>>444>", ">>>>444>"), "view_on_site", r"admin/(?P<url>.*)$"),
}  # fmt: skip

ROWS: dict[str, Row] = {**_PUBLIC, **_SUBMISSIONS, **_PEOPLE, **_API, **_ADMIN}
