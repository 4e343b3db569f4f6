"""docker/roles.sql and `manage.py database_rights` on PostgreSQL: the site works, and can take no protection away."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.apps import apps
from django.contrib.sessions.models import Session
from django.core.checks import run_checks
from django.db import DatabaseError, connection, transaction
from django.test import Client
from django.utils import timezone

from leaderboard.core import database_grants
from leaderboard.core.audit import record
from leaderboard.models import AuditRecord, User
from submissions.accounts.access import delete_expired_sessions
from submissions.models import TERMINAL, Job, State
from tests.factories import make_dataset, make_job, make_user
from tests.roles import make_roles, working_as

pytestmark = [pytest.mark.django_db, pytest.mark.database]

INSUFFICIENT_PRIVILEGE = "42501"
REFUSED_TO_ALL = [
    "TRUNCATE leaderboard_auditrecord",
    "UPDATE leaderboard_auditrecord SET reason = 'another'",
    "DELETE FROM leaderboard_auditrecord",
    "DROP TRIGGER audit_append_only ON leaderboard_auditrecord",
    "ALTER TABLE leaderboard_auditrecord DISABLE TRIGGER ALL",
    "DROP TABLE leaderboard_auditrecord",
    "SET LOCAL session_replication_role = replica",
    "CREATE TRIGGER mine BEFORE INSERT ON leaderboard_user EXECUTE FUNCTION runboard_refuse_audit_change()",
    "CREATE TABLE mine (id integer)",
    "CREATE ROLE mine SUPERUSER",
    "SET LOCAL ROLE runboard_owner",
    "UPDATE django_migrations SET name = 'another'",
    "COPY (SELECT 1) TO PROGRAM 'true'",
]
REFUSED_TO_RETRIEVERS = [
    "SELECT session_key FROM django_session",
    "SELECT data FROM mfa_authenticator",
    "SELECT * FROM submissions_apitoken",
    "SELECT * FROM submissions_accountmail",
    "UPDATE leaderboard_user SET is_superuser = true",
    "SELECT password FROM leaderboard_user",
    "SELECT email FROM leaderboard_user",
    "SELECT * FROM leaderboard_user",
    'SELECT "values" FROM leaderboard_evaluation',
    "SELECT scores FROM leaderboard_entry",
    "SELECT * FROM leaderboard_auditrecord",
    "SELECT * FROM leaderboard_pool",
    "SELECT * FROM leaderboard_historicaldataset",
    "SELECT * FROM leaderboard_historicalteam",
    "SELECT * FROM submissions_notice",
    "UPDATE leaderboard_dataset SET hidden = false",
    "UPDATE leaderboard_dataset SET current_qrels_id = NULL, state = 'published'",
    "UPDATE leaderboard_datasetfile SET sha256 = ''",
    "INSERT INTO leaderboard_qrels DEFAULT VALUES",
    "SELECT statistics FROM leaderboard_qrels",
    "SELECT note, parts_sha256 FROM leaderboard_qrels",
    "SELECT note FROM submissions_submission",
    "SELECT * FROM submissions_quotause",
    "UPDATE submissions_quotause SET refunded_at = now(), refund_reason = ''",
    "INSERT INTO submissions_quotause (kind, dataset_id, person_id, at) VALUES ('refusal', 1, 1, now())",
    "UPDATE leaderboard_qrels SET sha256 = ''",
    "UPDATE leaderboard_entry SET visibility = 'public'",
    "UPDATE leaderboard_run SET sha256 = ''",
    "UPDATE leaderboard_system SET team_id = 1",
    "DELETE FROM leaderboard_system",
    "UPDATE submissions_job SET kind = 'reveal'",
    "UPDATE submissions_job SET dataset_id = 1",
    "INSERT INTO leaderboard_workrequest (kind, payload, created_at) VALUES ('protect', '{}', now())",
    "INSERT INTO leaderboard_workrequest (kind, payload, created_at) VALUES ('notify', '{}', now())",
    "UPDATE submissions_submission SET public = true",
    "DELETE FROM submissions_job",
    "UPDATE submissions_checkpoint SET team_id = NULL",
    "INSERT INTO leaderboard_user_groups (user_id, group_id) VALUES (1, 1)",
    "DELETE FROM leaderboard_membership",
]

VERBS = ("SELECT", "INSERT", "UPDATE", "DELETE", "TRUNCATE", "REFERENCES", "TRIGGER")
#: What a retriever may do to whole tables, by the first letters of the verbs. To every other table nothing.
WHOLE = {
    "django_migrations": "S",
    "leaderboard_collectionprofile": "SIU",
    "leaderboard_dataset": "S",
    "leaderboard_datasetfile": "SI",
    "leaderboard_datasetversion": "S",
    "leaderboard_historicalsystem": "I",
    "leaderboard_overlap": "SI",
    "leaderboard_run": "SI",
    "leaderboard_run_built_from": "SI",
    "leaderboard_runprofile": "SI",
    "leaderboard_system": "SI",
    "leaderboard_systemredirect": "S",
    "leaderboard_team": "S",
    "leaderboard_workrequest": "SI",
    "submissions_checkpoint": "SI",
    "submissions_encoding": "SIUD",
    "submissions_job": "SI",
    "submissions_job_further_entries": "S",
    "submissions_shard": "SIUD",
    "submissions_stagetime": "SIU",
    "submissions_switch": "S",
    "submissions_worker": "SIU",
}
#: What it may do to some columns of a table, beyond that.
COLUMNS = {
    ("leaderboard_dataset", "UPDATE"): "updated_at",
    ("leaderboard_entry", "SELECT"): "id dataset_id evaluation_id visibility",
    ("leaderboard_evaluation", "SELECT"): "id run_id",
    ("leaderboard_historicalsystem", "SELECT"): "history_id",
    ("leaderboard_qrels", "SELECT"): "id version_id split number sha256",
    ("leaderboard_seed", "SELECT"): "id entry_id evaluation_id",
    ("leaderboard_user", "SELECT"): "id name",
    ("submissions_job", "UPDATE"): (
        "attempts cancel_requested error_code fault fence finished_at lease_expires_at log not_before payload progress "
        "progress_note queue report stage started_at state turn waits_for_id worker"
    ),
    ("submissions_submission", "SELECT"): (
        "id kind submitter_id team_id system_id configuration engine parameters checkpoint_id reusable round_id late "
        "run_type priority public bulk created_at withdrawn_at noticed_at"
    ),
    ("submissions_submission", "UPDATE"): "checkpoint_id",
}  # fmt: skip


@pytest.fixture
def roles() -> None:
    make_roles()


def refused(statement: str, role: str) -> bool:
    """Whether the role may not do it."""
    try:
        with transaction.atomic(), connection.cursor() as cursor:
            if not statement.startswith("SET LOCAL ROLE"):
                cursor.execute("SET LOCAL ROLE " + role)
            else:  # as the role itself, not as the superuser that lent it
                cursor.execute("SET LOCAL SESSION AUTHORIZATION " + role)
            cursor.execute(statement)
            transaction.set_rollback(True)
    except DatabaseError as error:
        return getattr(error.__cause__, "sqlstate", "") == INSUFFICIENT_PRIVILEGE
    return False


def test_the_site_works_and_can_take_no_protection_away(roles: None) -> None:
    with working_as(database_grants.SITE):
        person = make_user("Ada")
        client = Client()
        client.force_login(person)
        assert client.get("/account/sessions/").status_code == 200
        record("tested", "nothing")
        Session.objects.update(expire_date=timezone.now() - timedelta(seconds=1))
        assert delete_expired_sessions() == 1
        person.delete()
    assert AuditRecord.objects.filter(action="tested").exists()
    allowed = [each for each in REFUSED_TO_ALL if not refused(each, database_grants.SITE)]
    assert allowed == []
    # What the site may do is not refused to it: the question can be answered both ways.
    assert not refused("UPDATE leaderboard_user SET is_superuser = true", database_grants.SITE)


def test_a_retriever_sees_no_session_and_gives_no_rights(roles: None) -> None:
    with working_as(database_grants.RETRIEVER):
        assert list(User.objects.only("pk", "name")) == []
    allowed = [each for each in REFUSED_TO_ALL + REFUSED_TO_RETRIEVERS if not refused(each, database_grants.RETRIEVER)]
    assert allowed == []


def granted(role: str) -> tuple[dict[str, str], dict[tuple[str, str], str]]:
    """What PostgreSQL says that a role may do: to whole tables, and to columns of others, as WHOLE and COLUMNS."""
    whole: dict[str, str] = {}
    columns: dict[tuple[str, str], list[str]] = {}
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
        for table in tables:
            for verb in VERBS:
                cursor.execute("SELECT has_table_privilege(%s, %s, %s)", [role, table, verb])
                if cursor.fetchone()[0]:
                    whole[table] = whole.get(table, "") + verb[0]
        cursor.execute(
            "SELECT table_name, privilege_type, column_name FROM information_schema.columns "
            "JOIN information_schema.column_privileges USING (table_schema, table_name, column_name) "
            "WHERE grantee = %s AND NOT has_table_privilege(%s, table_name::text, privilege_type) "
            "ORDER BY ordinal_position",
            [role, role],
        )
        for table, verb, column in cursor.fetchall():
            columns.setdefault((table, verb), []).append(column)
    return whole, {place: " ".join(names) for place, names in columns.items()}


def test_what_each_role_may_do_to_each_table(roles: None) -> None:
    """Every table × verb × role: a right that nobody meant to give is found here, and a new table is closed."""
    whole, columns = granted(database_grants.RETRIEVER)
    assert whole == WHOLE
    assert {place: set(names.split()) for place, names in columns.items()} == {
        place: set(names.split()) for place, names in COLUMNS.items()
    }
    whole, columns = granted(database_grants.SITE)
    added_to = {"leaderboard_auditrecord": "SI", "leaderboard_acceptance": "SI", "django_migrations": "S"}
    with connection.cursor() as cursor:
        tables = connection.introspection.table_names(cursor)
    assert whole == {table: added_to.get(table, "SIUD") for table in tables}
    assert columns == {}


def test_a_retriever_changes_no_job_that_has_ended(roles: None) -> None:
    """What decides whether a quota is given back is how a job ended."""
    assert set(database_grants.FINAL_STATES) == set(TERMINAL)
    job = make_job(make_dataset())
    Job.objects.filter(pk=job.pk).update(kind=Job.Kind.MODEL)
    change = "UPDATE submissions_job SET state = 'failed'"
    assert not refused(change, database_grants.RETRIEVER)
    Job.objects.filter(pk=job.pk).update(state=State.DONE)
    assert refused(change, database_grants.RETRIEVER)
    assert refused("UPDATE submissions_job SET started_at = now()", database_grants.RETRIEVER)
    assert not refused("UPDATE submissions_job SET log = 'a line'", database_grants.RETRIEVER)


def test_a_retriever_handles_its_own_kinds_of_jobs_and_adds_shards_alone(roles: None) -> None:
    """A scorer would do what another asks for, in whoever's name it carries."""
    job = make_job(make_dataset())
    add = "INSERT INTO submissions_job (kind, queue, state, payload) VALUES ('{}', 'score', 'queued', '{{}}')"
    change = "UPDATE submissions_job SET payload = '{}'"
    added, changed = set(), set()
    for kind in Job.Kind.values:
        Job.objects.filter(pk=job.pk).update(kind=kind)
        if not refused(add.format(kind), database_grants.RETRIEVER):
            added.add(kind)
        if not refused(change, database_grants.RETRIEVER):
            changed.add(kind)
    assert added == {"shard"}
    assert changed == {"baseline", "download", "model", "retrieve", "sample_model", "shard", "statistics"}
    assert not refused(change, database_grants.SITE)


def test_a_table_of_a_migration_to_come_is_the_sites_at_once(roles: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE runboard_owner")
        cursor.execute("CREATE TABLE to_come (id bigint GENERATED BY DEFAULT AS IDENTITY, name text)")
    with working_as(database_grants.SITE), connection.cursor() as cursor:
        cursor.execute("INSERT INTO to_come (name) VALUES ('a'); UPDATE to_come SET name = 'b'; DELETE FROM to_come")
    assert refused("TRUNCATE to_come", database_grants.SITE)
    assert refused("SELECT * FROM to_come", database_grants.RETRIEVER)


def test_a_role_that_could_is_warned_of(roles: None) -> None:
    def warned() -> bool:
        found = run_checks(databases=["default"], include_deployment_checks=True, tags=["database"])
        return "leaderboard.W003" in [each.id for each in found]

    with working_as(database_grants.SITE):
        assert not warned()
    with working_as("runboard_owner"):
        assert warned()
    assert warned()  # the superuser of the tests
    asked_by_migrate = run_checks(databases=["default"], tags=["database"])
    assert "leaderboard.W003" not in [each.id for each in asked_by_migrate]


def test_every_table_and_column_that_is_named_is_there() -> None:
    tables = {model._meta.db_table: model for model in apps.get_models(include_auto_created=True)}
    named = {*database_grants.APPEND_ONLY, *database_grants.TABLES_OF_RETRIEVERS}.difference(database_grants.MIGRATIONS)
    assert named <= set(tables), named.difference(tables)
    for columns in (database_grants.READ_BY_RETRIEVERS, database_grants.CHANGED_BY_RETRIEVERS):
        for table, some in columns.items():
            assert set(some) <= {field.column for field in tables[table]._meta.concrete_fields}, table
