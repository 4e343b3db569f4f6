"""Django system checks of the site.

The checks cover the state folder, sites on the internet (`manage.py check --deploy`), the database (`--database
default`) and, with both options, the site's database role.
"""

import stat
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import AppConfig
from django.conf import settings
from django.core.checks import CheckMessage, Error, Warning
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.backends.utils import CursorWrapper

from leaderboard.core.branding import MIN_CONTRAST, THEMES, describe_logo_problem, least_contrast
from leaderboard.core.database_grants import AUDIT_TABLE
from leaderboard.core.schema_version import describe_earlier_history


def check_mail(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if a public site cannot confirm email addresses."""
    if settings.EMBEDDED or settings.ACCOUNT_EMAIL_VERIFICATION == "mandatory":
        return []
    return [
        Warning(
            "This site has no mail server, so anyone can sign up with any email address, which remains unconfirmed.",
            hint="Set EMAIL_URL, such as smtp+tls://USER:PASSWORD@HOST:587.",
            id="leaderboard.W001",
        )
    ]


def check_folder(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Warn if other users of the machine can enter the state folder, which holds judgments and perhaps the database."""
    mode = stat.S_IMODE(settings.VAR.stat().st_mode)
    if not mode & 0o077:
        return []
    return [
        Warning(
            f"Other users of this machine may enter {settings.VAR} (mode {mode:03o}). Only file modes "
            "protect its contents, and some files may have been created with readable modes.",
            hint=f"chmod 700 {settings.VAR}",
            id="leaderboard.W004",
        )
    ]


def check_site_pages(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Return a warning for each of the operator's pages without a file."""
    return [
        Warning(
            f"{path} is missing, so /{name}/ responds with 404.",
            hint="Restore the file in SITE_PAGES_FOLDER, or restart the site without it.",
            id="leaderboard.W005",
        )
        for name, path in settings.SITE_PAGES.items()
        if path is not None and not path.is_file()
    ]


def check_branding(app_configs: Sequence[AppConfig] | None, **kwargs: Any) -> list[CheckMessage]:
    """Check that the site name is one line, the logo is usable, and links in the accent color are legible."""
    messages: list[CheckMessage] = []
    if not settings.SITE_NAME.strip() or not settings.SITE_NAME.isprintable():
        hint = "Use a name of one line: it appears in emails, feeds, and titles."
        messages.append(Error("SITE_NAME is empty or not one line.", hint=hint, id="leaderboard.E004"))
    if settings.SITE_LOGO is not None and (problem := describe_logo_problem(settings.SITE_LOGO)):
        hint = "Name an SVG or PNG file that the web processes can read."
        messages.append(Error(problem, hint=hint, id="leaderboard.E002"))
    for theme, colour in zip(THEMES, settings.ACCENT or (), strict=False):
        contrast = least_contrast(colour, theme)
        if contrast < MIN_CONTRAST:
            messages.append(
                Error(
                    f"ACCENT_COLOUR: {colour} has a contrast of {contrast:.1f} with the page in the {theme} theme; "
                    f"links need {MIN_CONTRAST}.",
                    hint="Choose a darker color for the light theme or a lighter one for the dark theme: LIGHT,DARK.",
                    id="leaderboard.E003",
                )
            )
    return messages


def check_history(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Report a database created by the earlier migrations; `migrate` runs this check and then changes nothing."""
    if DEFAULT_DB_ALIAS not in (databases or ()) or not (problem := describe_earlier_history()):
        return []
    return [Error(problem, id="leaderboard.E001")]


def check_durability(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn if PostgreSQL may lose committed data, because uploads are acknowledged once they are committed."""
    messages: list[CheckMessage] = []
    for cursor in _postgresql_cursors(databases):
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            cursor.execute(f"SHOW {name}")
            if cursor.fetchone()[0] == "off":
                messages.append(
                    Warning(
                        f"PostgreSQL runs with {name}=off: a crash may lose submissions that were acknowledged.",
                        hint=f"Set {name} = on in postgresql.conf, or remove the setting of the role or the database.",
                        id="leaderboard.W002",
                    )
                )
    return messages


def check_role(
    app_configs: Sequence[AppConfig] | None, databases: Sequence[str] | None = None, **kwargs: Any
) -> list[CheckMessage]:
    """Warn if the site's PostgreSQL role could remove the protection of the audit log."""
    messages: list[CheckMessage] = []
    for cursor in _postgresql_cursors(databases):
        cursor.execute("SELECT current_user, rolsuper FROM pg_roles WHERE rolname = current_user")
        role, is_superuser = cursor.fetchone()
        cursor.execute(
            "SELECT EXISTS (SELECT FROM pg_class WHERE oid = to_regclass(%s)"
            " AND pg_has_role(current_user, relowner, 'MEMBER'))",
            [AUDIT_TABLE],
        )
        owns_table = cursor.fetchone()[0]
        if is_superuser or owns_table:
            reason = "is a superuser" if is_superuser else "owns its table"
            messages.append(
                Warning(
                    f"The site connects to PostgreSQL as role {role}, which {reason} and can remove the triggers that "
                    "keep the audit log append-only.",
                    hint="Migrate under a separate role: docker/roles.sql creates both roles, and "
                    "`manage.py database_rights` grants the site's role its privileges.",
                    id="leaderboard.W003",
                )
            )
    return messages


def _postgresql_cursors(databases: Sequence[str] | None) -> Iterator[CursorWrapper]:
    """Yield a cursor for each of the databases that is PostgreSQL."""
    for alias in databases or ():
        if connections[alias].vendor == "postgresql":
            with connections[alias].cursor() as cursor:
                yield cursor
