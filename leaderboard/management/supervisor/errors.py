"""Why a site cannot start, or cannot go on. Each message is printed as it is, so it says what to do."""

from __future__ import annotations


class SupervisorError(Exception):
    """The site ends, with exit status 1, because of what this message says."""


class StopRequested(Exception):
    """SIGINT, SIGTERM or SIGHUP arrived: everything is ended, with exit status 0."""
