"""PostgreSQL privileges of the site's roles, which docker/roles.sql creates.

The site's role reads and writes rows. It can only append to the audit log and only read the migration history.

A retriever runs code that users uploaded. If that code escapes the sandbox, its role can do only what retrieval needs:
some verbs on some tables, and some columns of others. It cannot read sessions, accounts, tokens, email addresses,
teams or scored results, and cannot change visibility or permissions.
"""

from collections.abc import Mapping
from typing import Any

from django.db import connection, transaction

SITE = "runboard_site"
RETRIEVER = "runboard_retriever"

#: Table of the audit log.
AUDIT_TABLE = "leaderboard_auditrecord"
#: Append-only tables of the site. A trigger also protects the audit log (migration 0002).
APPEND_ONLY = frozenset({AUDIT_TABLE, "leaderboard_acceptance"})
#: Tables that only migrations write.
MIGRATIONS = frozenset({"django_migrations"})
#: Privileges of retrievers by table, in addition to reading its rows: all columns, or those in
#: READ_BY_RETRIEVERS.
TABLES_OF_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "django_migrations": (),
    # Input of retrieval: datasets, teams and systems.
    "leaderboard_dataset": (),
    "leaderboard_datasetversion": (),
    "leaderboard_datasetfile": ("INSERT",),
    "leaderboard_systemredirect": (),
    "leaderboard_team": (),
    "leaderboard_system": ("INSERT",),
    "leaderboard_historicalsystem": ("INSERT",),
    # Output of retrieval: runs and profiles.
    "leaderboard_run": ("INSERT",),
    "leaderboard_run_built_from": ("INSERT",),
    "leaderboard_collectionprofile": ("INSERT", "UPDATE"),
    "leaderboard_overlap": ("INSERT",),
    "leaderboard_runprofile": ("INSERT",),
    "leaderboard_workrequest": ("INSERT",),
    # The queue, and the files of models.
    "submissions_job": ("INSERT",),
    "submissions_job_further_entries": (),
    "submissions_checkpoint": ("INSERT",),
    "submissions_encoding": ("INSERT", "UPDATE", "DELETE"),
    "submissions_shard": ("INSERT", "UPDATE", "DELETE"),
    "submissions_stagetime": ("INSERT", "UPDATE"),
    "submissions_switch": (),
    "submissions_worker": ("INSERT", "UPDATE"),
}
#: Readable columns of tables that are otherwise closed to retrievers. They exclude email addresses,
#: passwords, scores, judgment counts, and notes of judgments and submissions.
READ_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "leaderboard_entry": ("id", "dataset_id", "evaluation_id", "visibility"),
    "leaderboard_evaluation": ("id", "run_id"),
    "leaderboard_historicalsystem": ("history_id",),
    "leaderboard_qrels": ("id", "version_id", "split", "number", "sha256"),
    "leaderboard_seed": ("id", "entry_id", "evaluation_id"),
    "leaderboard_user": ("id", "name"),
    "submissions_submission": (
        "id", "kind", "submitter_id", "team_id", "system_id", "configuration", "engine", "parameters", "checkpoint_id",
        "reusable", "round_id", "late", "run_type", "priority", "public", "bulk", "created_at", "withdrawn_at",
        "noticed_at",
    ),
}  # fmt: skip
#: Final states of a job. A retriever that could change them could refund any team's quota.
FINAL_STATES = ("done", "rejected", "failed", "cancelled", "timed_out", "withdrawn")
#: Columns that retrievers may update. They exclude the kind and owner of a job; the one column of a dataset
#: lets them lock its row.
CHANGED_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "leaderboard_dataset": ("updated_at",),
    "submissions_job": (
        "attempts", "cancel_requested", "error_code", "fault", "fence", "finished_at", "lease_expires_at", "log",
        "not_before", "payload", "progress", "progress_note", "queue", "report", "stage", "started_at", "state",
        "turn", "waits_for_id", "worker",
    ),
    "submissions_submission": ("checkpoint_id",),
}  # fmt: skip
#: Kinds of rows that retrievers may insert and update, by table. Scorers carry out all other kinds of
#: requests, so a retriever could otherwise unprotect a hidden dataset in a curator's name.
ADDED_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "leaderboard_workrequest": ("settle", "statistics"),
    "submissions_job": ("shard",),
}
HANDLED_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "submissions_job": ("baseline", "download", "model", "retrieve", "sample_model", "shard", "statistics"),
}
_ONLY_KINDS = f"""
CREATE OR REPLACE FUNCTION runboard_only_kinds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = '{RETRIEVER}' AND NOT NEW.kind = ANY (TG_ARGV) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a retriever may not write ' || TG_TABLE_NAME
            || ' rows of the kind ' || NEW.kind;
    END IF;
    RETURN NEW;
END $$
"""
_STAYS_ENDED = f"""
CREATE OR REPLACE FUNCTION runboard_stays_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = '{RETRIEVER}' AND OLD.state IN {FINAL_STATES}
        AND (NEW.state, NEW.started_at, NEW.error_code)
            IS DISTINCT FROM (OLD.state, OLD.started_at, OLD.error_code) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a retriever may not change the final state of a job';
    END IF;
    RETURN NEW;
END $$
"""


def table_privileges(role: str, table: str) -> tuple[str, ...]:
    """Return the privileges of a role on a table in GRANT syntax, possibly with columns; empty if it has none."""
    if role == RETRIEVER:
        rights = TABLES_OF_RETRIEVERS.get(table, ())
        if table in TABLES_OF_RETRIEVERS and table not in READ_BY_RETRIEVERS:
            rights = ("SELECT", *rights)
        for verb, columns in (("SELECT", READ_BY_RETRIEVERS), ("UPDATE", CHANGED_BY_RETRIEVERS)):
            if table in columns:
                column_list = ", ".join(connection.ops.quote_name(column) for column in columns[table])
                rights += (f"{verb} ({column_list})",)
        return rights
    if table in MIGRATIONS:
        return ("SELECT",)
    if table in APPEND_ONLY:
        return ("SELECT", "INSERT")
    return ("SELECT", "INSERT", "UPDATE", "DELETE")


def grant_rights() -> dict[str, int]:
    """Grant each existing role its privileges on all tables, revoke all others, and count the tables by role.

    Run it as the owner of the tables after each migration. Returns an empty dictionary if the database is not
    PostgreSQL or has none of the roles.
    """
    if connection.vendor != "postgresql":
        return {}
    quote = connection.ops.quote_name
    table_counts: dict[str, int] = {}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname IN (%s, %s) ORDER BY 1", [SITE, RETRIEVER])
        roles = [row[0] for row in cursor.fetchall()]
        tables = connection.introspection.table_names(cursor)
        for role in roles:
            cursor.execute(f"GRANT USAGE ON SCHEMA public TO {quote(role)}")
            cursor.execute(f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {quote(role)}")
            cursor.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {quote(role)}")
            for table in tables:
                if rights := ", ".join(table_privileges(role, table)):
                    cursor.execute(f"GRANT {rights} ON {quote(table)} TO {quote(role)}")
                    table_counts[role] = table_counts.get(role, 0) + 1
        if RETRIEVER in roles:
            _restrict_retrievers(cursor)
    return table_counts


def _restrict_retrievers(cursor: Any) -> None:
    """Restrict row kinds and states by triggers, because table privileges apply to all rows."""
    cursor.execute(_ONLY_KINDS)
    cursor.execute(_STAYS_ENDED)
    for verb, tables in (("INSERT", ADDED_BY_RETRIEVERS), ("UPDATE", HANDLED_BY_RETRIEVERS)):
        for table, kinds in tables.items():
            kind_list = ", ".join(f"'{kind}'" for kind in kinds)
            cursor.execute(
                f"CREATE OR REPLACE TRIGGER only_kinds_{verb.lower()} BEFORE {verb} ON {table} "
                f"FOR EACH ROW EXECUTE FUNCTION runboard_only_kinds({kind_list})"
            )
    cursor.execute(
        "CREATE OR REPLACE TRIGGER stays_ended BEFORE UPDATE ON submissions_job "
        "FOR EACH ROW EXECUTE FUNCTION runboard_stays_ended()"
    )


def may_change(table: str) -> bool:
    """Return whether the current role may update rows of the table: True except for retrievers on PostgreSQL."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'UPDATE')", [table])
        return bool(cursor.fetchone()[0])
