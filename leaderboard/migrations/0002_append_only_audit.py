"""The database itself refuses to change or delete what the audit log says.

On PostgreSQL also to empty the table, unless triggers are off for the session (`session_replication_role`), which takes
a superuser: a restore does that, the site's own role cannot.
"""

from django.db import migrations
from django.db.backends.base.schema import BaseDatabaseSchemaEditor
from django.db.migrations.state import StateApps

TABLE = "leaderboard_auditrecord"

POSTGRESQL = f"""
CREATE FUNCTION runboard_refuse_audit_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'audit records are append-only' USING ERRCODE = 'restrict_violation';
END $$;
CREATE TRIGGER audit_append_only BEFORE UPDATE OR DELETE ON {TABLE}
    FOR EACH ROW EXECUTE FUNCTION runboard_refuse_audit_change();
CREATE TRIGGER audit_never_emptied BEFORE TRUNCATE ON {TABLE}
    FOR EACH STATEMENT EXECUTE FUNCTION runboard_refuse_audit_change();
"""
POSTGRESQL_BACK = f"""
DROP TRIGGER audit_never_emptied ON {TABLE};
DROP TRIGGER audit_append_only ON {TABLE};
DROP FUNCTION runboard_refuse_audit_change();
"""
SQLITE = [
    f"CREATE TRIGGER audit_no_{act.lower()} BEFORE {act} ON {TABLE} "
    "BEGIN SELECT RAISE(ABORT, 'audit records are append-only'); END"
    for act in ("UPDATE", "DELETE")
]
SQLITE_BACK = ["DROP TRIGGER audit_no_update", "DROP TRIGGER audit_no_delete"]


def refuse(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Make the triggers."""
    for statement in {"postgresql": [POSTGRESQL], "sqlite": SQLITE}.get(editor.connection.vendor, []):
        editor.execute(statement)


def allow(apps: StateApps, editor: BaseDatabaseSchemaEditor) -> None:
    """Take them away."""
    for statement in {"postgresql": [POSTGRESQL_BACK], "sqlite": SQLITE_BACK}.get(
        editor.connection.vendor, []
    ):
        editor.execute(statement)


class Migration(migrations.Migration):
    """See the module."""

    dependencies = [("leaderboard", "0001_initial")]
    operations = [migrations.RunPython(refuse, allow)]
