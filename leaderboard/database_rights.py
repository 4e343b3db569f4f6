"""What each of the site's roles may do to which table of PostgreSQL; docker/roles.sql makes the roles.

The site's role reads and writes rows. The record of who did what it only adds to, and what migrations wrote down it
only reads. A retriever runs what strangers wrote: should that get out of its sandbox, the role it then has opens no
session, account, token, mailbox or team, and gives nobody a right.
"""

from __future__ import annotations

from django.db import connection, transaction

SITE = "runboard_site"
RETRIEVER = "runboard_retriever"

#: The record of who did what.
AUDIT_TABLE = "leaderboard_auditrecord"
#: What the site adds to and reads, and never changes; a trigger says so too (migration 0005).
ADDED_TO = frozenset({AUDIT_TABLE})
#: What migrations alone write.
MIGRATIONS = frozenset({"django_migrations"})
#: Tables that no retriever sees: sessions, second factors, tokens, and mails with keys in them.
NOT_FOR_RETRIEVERS = frozenset(
    {
        "account_emailaddress", "account_emailconfirmation", "django_admin_log", "django_session",
        "leaderboard_invitation", "mfa_authenticator", "submissions_accountmail", "submissions_apitoken",
        "submissions_delivery", "submissions_webhook", "usersessions_usersession",
    }
)  # fmt: skip
#: What retrievers read and never write: who people are, and what they may.
READ_BY_RETRIEVERS = frozenset(
    {
        "auth_group", "auth_group_permissions", "auth_permission", "django_content_type", "leaderboard_membership",
        "leaderboard_price", "leaderboard_team", "leaderboard_user", "leaderboard_user_groups",
        "leaderboard_user_user_permissions", "submissions_noticepreference", "submissions_quotaexception",
    }
)  # fmt: skip
#: Rows of the past, which the rows of the present bring with them.
HISTORIES = "historical"


def rights_of(role: str, table: str) -> tuple[str, ...]:
    """What a role may do to the rows of a table; empty: nothing."""
    if table in MIGRATIONS:
        return ("SELECT",)
    if role == RETRIEVER:
        if table in NOT_FOR_RETRIEVERS:
            return ()
        if table in READ_BY_RETRIEVERS:
            return ("SELECT",)
    if table in ADDED_TO or (role == RETRIEVER and HISTORIES in table):
        return ("SELECT", "INSERT")
    return ("SELECT", "INSERT", "UPDATE", "DELETE")


def give_rights() -> dict[str, int]:
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
    return given
