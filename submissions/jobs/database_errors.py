"""What a worker does when the database goes away under a job, and what is not held against anybody afterwards."""

from __future__ import annotations

import logging
import time

from django.conf import settings
from django.db import DatabaseError, InterfaceError, OperationalError, connection

from submissions.models import Job
from submissions.queue.process import STOPPING
from submissions.queue.queue import put_back

logger = logging.getLogger(__name__)

#: How long a worker waits for the database to give its job back, in seconds; then the reaper finds the job.
_PATIENCE = 3600.0
#: How often one job may be given back in this way: one that takes the database down with it ends all the same.
_CLAIMS = 30

#: What PostgreSQL says when it ends a session: shut down, crashed, not up yet, a transaction that stood still.
_ENDED = frozenset({"57P01", "57P02", "57P03", "25P03"})


def lost_database(error: BaseException) -> bool:
    """Whether the error is that this process has lost its connection to the database.

    Of SQLite it has none to lose; a question that the server refused leaves the connection as it was. Where the server
    says that it ended the session, a new connection may be there already.
    """
    if not isinstance(error, DatabaseError):
        return False
    return getattr(error.__cause__, "sqlstate", None) in _ENDED or not connection.is_usable()


def give_back(job: Job) -> None:
    """Put a job that the loss of the database has broken off back into the queue, as soon as there is one.

    The attempt is not counted: it is no fault of the job. What had been committed stands, and the job is not put back.
    """
    logger.warning("job %s: the database went away; it is put back when there is one", job.pk)
    deadline = time.monotonic() + _PATIENCE
    while True:
        connection.close()
        try:
            put_back(job, counted=job.fence >= _CLAIMS)
            return
        except (OperationalError, InterfaceError):
            if time.monotonic() > deadline or STOPPING.wait(settings.LEASE_LOOK_SECONDS):
                raise
