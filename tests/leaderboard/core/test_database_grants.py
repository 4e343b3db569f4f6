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
from submissions.accounts.sessions import forget_expired
from submissions.models import Job
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
        assert forget_expired() == 1
        person.delete()
    assert AuditRecord.objects.filter(action="tested").exists()
    allowed = [each for each in REFUSED_TO_ALL if not refused(each, database_grants.SITE)]
    assert allowed == []
    # What the site may do is not refused to it: the question can be answered both ways.
    assert not refused("UPDATE leaderboard_user SET is_superuser = true", database_grants.SITE)


def test_a_retriever_sees_no_session_and_gives_no_rights(roles: None) -> None:
    with working_as(database_grants.RETRIEVER):
        assert list(User.objects.only("pk", "name")) == []
    allowed = [
        each
        for each in REFUSED_TO_ALL + REFUSED_TO_RETRIEVERS
        if not refused(each, database_grants.RETRIEVER)
    ]
    assert allowed == []


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
    assert changed == {"baseline", "model", "retrieve", "sample_model", "shard", "statistics"}
    assert not refused(change, database_grants.SITE)


def test_a_table_of_a_migration_to_come_is_the_sites_at_once(roles: None) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL ROLE runboard_owner")
        cursor.execute("CREATE TABLE to_come (id bigint GENERATED BY DEFAULT AS IDENTITY, name text)")
    with working_as(database_grants.SITE), connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO to_come (name) VALUES ('a'); UPDATE to_come SET name = 'b'; DELETE FROM to_come"
        )
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
    named = {*database_grants.ADDED_TO, *database_grants.TABLES_OF_RETRIEVERS}.difference(
        database_grants.MIGRATIONS
    )
    assert named <= set(tables), named.difference(tables)
    for columns in (database_grants.READ_BY_RETRIEVERS, database_grants.CHANGED_BY_RETRIEVERS):
        for table, some in columns.items():
            assert set(some) <= {field.column for field in tables[table]._meta.concrete_fields}, table
