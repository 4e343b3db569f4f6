"""What each of the site's roles may do to which table of PostgreSQL; docker/roles.sql makes the roles.

The site's role reads and writes rows. The record of who did what it only adds to, and what migrations wrote down it
only reads. A retriever runs what strangers wrote. Should that get out of its sandbox, the role that it then has can do
only what retrieving needs: some verbs on some tables, of others some columns. It opens no session, account, token,
mailbox or team, sees no result over any judgements, and decides neither what is hidden nor who may what.
"""

from collections.abc import Mapping
from typing import Any

from django.db import connection, transaction

SITE = "runboard_site"
RETRIEVER = "runboard_retriever"

#: The record of who did what.
AUDIT_TABLE = "leaderboard_auditrecord"
#: What the site adds to and reads, and never changes; of the record a trigger says so too (migration 0002).
ADDED_TO = frozenset({AUDIT_TABLE, "leaderboard_acceptance"})
#: What migrations alone write.
MIGRATIONS = frozenset({"django_migrations"})
#: What retrievers may do to the rows of a table besides reading them: whole, or by the columns of READ_BY_RETRIEVERS.
TABLES_OF_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "django_migrations": (),
    # What is retrieved, for whom, and from what.
    "leaderboard_dataset": (),
    "leaderboard_datasetversion": (),
    "leaderboard_datasetfile": ("INSERT",),
    "leaderboard_systemredirect": (),
    "leaderboard_team": (),
    "leaderboard_system": ("INSERT",),
    "leaderboard_historicalsystem": ("INSERT",),
    # What is found.
    "leaderboard_run": ("INSERT",),
    "leaderboard_run_built_from": ("INSERT",),
    "leaderboard_collectionprofile": ("INSERT", "UPDATE"),
    "leaderboard_overlap": ("INSERT",),
    "leaderboard_runprofile": ("INSERT",),
    "leaderboard_workrequest": ("INSERT",),
    # The queue, and what models need.
    "submissions_job": ("INSERT",),
    "submissions_job_further_entries": (),
    "submissions_checkpoint": ("INSERT",),
    "submissions_encoding": ("INSERT", "UPDATE", "DELETE"),
    "submissions_shard": ("INSERT", "UPDATE", "DELETE"),
    "submissions_stagetime": ("INSERT", "UPDATE"),
    "submissions_switch": (),
    "submissions_worker": ("INSERT", "UPDATE"),
}
#: Columns that retrievers read of tables that are closed to them otherwise: of people no address and no password, of
#: results no value, of judgements neither counts nor notes, of submissions no note.
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
#: States in which a job has ended. A retriever that could change them could have anybody's quota given back.
ENDED = ("done", "rejected", "failed", "cancelled", "timed_out", "withdrawn")
#: Columns that retrievers change: of a job neither what it is nor whose; of a dataset the one that lets them hold its
#: row.
CHANGED_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "leaderboard_dataset": ("updated_at",),
    "submissions_job": (
        "attempts", "cancel_requested", "error_code", "fault", "fence", "finished_at", "lease_expires_at", "log",
        "not_before", "payload", "progress", "progress_note", "queue", "report", "stage", "started_at", "state",
        "turn", "waits_for_id", "worker",
    ),
    "submissions_submission": ("checkpoint_id",),
}  # fmt: skip
#: Kinds of rows that retrievers add, and those that they change, by table. A scorer does what any other row asks for:
#: a retriever could have a hidden dataset's protection taken off in a curator's name.
ADDED_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "leaderboard_workrequest": ("settle", "statistics"),
    "submissions_job": ("shard",),
}
HANDLED_BY_RETRIEVERS: Mapping[str, tuple[str, ...]] = {
    "submissions_job": ("baseline", "model", "retrieve", "sample_model", "shard", "statistics"),
}
_ONLY_KINDS = f"""
CREATE OR REPLACE FUNCTION runboard_only_kinds() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = '{RETRIEVER}' AND NOT NEW.kind = ANY (TG_ARGV) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a retriever has nothing to do with ' || TG_TABLE_NAME
            || ' of the kind ' || NEW.kind;
    END IF;
    RETURN NEW;
END $$
"""
_STAYS_ENDED = f"""
CREATE OR REPLACE FUNCTION runboard_stays_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF current_user = '{RETRIEVER}' AND OLD.state IN {ENDED}
        AND (NEW.state, NEW.started_at, NEW.error_code)
            IS DISTINCT FROM (OLD.state, OLD.started_at, OLD.error_code) THEN
        RAISE insufficient_privilege USING MESSAGE = 'a retriever does not change how a job has ended';
    END IF;
    RETURN NEW;
END $$
"""


def rights_of(role: str, table: str) -> tuple[str, ...]:
    """What a role may do to the rows of a table, as GRANT has it, perhaps with columns; empty: nothing."""
    if role == RETRIEVER:
        rights = TABLES_OF_RETRIEVERS.get(table, ())
        if table in TABLES_OF_RETRIEVERS and table not in READ_BY_RETRIEVERS:
            rights = ("SELECT", *rights)
        for verb, columns in (("SELECT", READ_BY_RETRIEVERS), ("UPDATE", CHANGED_BY_RETRIEVERS)):
            if table in columns:
                named = ", ".join(connection.ops.quote_name(column) for column in columns[table])
                rights += (f"{verb} ({named})",)
        return rights
    if table in MIGRATIONS:
        return ("SELECT",)
    if table in ADDED_TO:
        return ("SELECT", "INSERT")
    return ("SELECT", "INSERT", "UPDATE", "DELETE")


def grant_rights() -> dict[str, int]:
    """Give each role that is there its rights to all tables, and no other; how many tables it may use, by role.

    For the owner of the tables, after each migration. Empty where the database is not PostgreSQL, or has no such role.
    """
    if connection.vendor != "postgresql":
        return {}
    quote = connection.ops.quote_name
    given: dict[str, int] = {}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolname IN (%s, %s) ORDER BY 1", [SITE, RETRIEVER])
        roles = [row[0] for row in cursor.fetchall()]
        tables = connection.introspection.table_names(cursor)
        for role in roles:
            cursor.execute(f"GRANT USAGE ON SCHEMA public TO {quote(role)}")
            cursor.execute(f"GRANT USAGE, SELECT ON ALL SEQUENCES IN SCHEMA public TO {quote(role)}")
            cursor.execute(f"REVOKE ALL ON ALL TABLES IN SCHEMA public FROM {quote(role)}")
            for table in tables:
                if rights := ", ".join(rights_of(role, table)):
                    cursor.execute(f"GRANT {rights} ON {quote(table)} TO {quote(role)}")
                    given[role] = given.get(role, 0) + 1
        if RETRIEVER in roles:
            _restrict_retrievers(cursor)
    return given


def _restrict_retrievers(cursor: Any) -> None:
    """By triggers, since a right to a table holds for all kinds and states of its rows."""
    cursor.execute(_ONLY_KINDS)
    cursor.execute(_STAYS_ENDED)
    for verb, tables in (("INSERT", ADDED_BY_RETRIEVERS), ("UPDATE", HANDLED_BY_RETRIEVERS)):
        for table, kinds in tables.items():
            listed = ", ".join(f"'{kind}'" for kind in kinds)
            cursor.execute(
                f"CREATE OR REPLACE TRIGGER only_kinds_{verb.lower()} BEFORE {verb} ON {table} "
                f"FOR EACH ROW EXECUTE FUNCTION runboard_only_kinds({listed})"
            )
    cursor.execute(
        "CREATE OR REPLACE TRIGGER stays_ended BEFORE UPDATE ON submissions_job "
        "FOR EACH ROW EXECUTE FUNCTION runboard_stays_ended()"
    )


def may_change(table: str) -> bool:
    """Whether the role of this connection may change rows of the table: True but for retrievers on PostgreSQL."""
    if connection.vendor != "postgresql":
        return True
    with connection.cursor() as cursor:
        cursor.execute("SELECT has_table_privilege(%s, 'UPDATE')", [table])
        return bool(cursor.fetchone()[0])
