"""What the log makes of answers that refuse a request, and of the addresses that were asked for."""

from __future__ import annotations

import logging

from django.http import HttpRequest


class ClientErrorsAsInfo(logging.Filter):
    """Puts what Django says of an answer 4xx at INFO, in one line: a visitor's mistake is nothing that an operator must
    look at, and a visitor could write many."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lower the record's level; False where that level is not logged."""
        if 400 <= getattr(record, "status_code", 0) < 500 and record.levelno >= logging.WARNING:
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            record.exc_info = record.exc_text = None
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True


class PathsAsViewNames(logging.Filter):
    """Puts the view's name for the address in what Django says of a request.

    Addresses carry invitations and keys to reset passwords. The request itself goes too, which JSON would spell out.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """Change the record; always True."""
        request = record.__dict__.pop("request", None)
        if isinstance(request, HttpRequest) and isinstance(record.args, tuple):
            view = view_of(request)
            record.args = tuple(view if argument == request.path else argument for argument in record.args)
        return True


def view_of(request: HttpRequest) -> str:
    """What a log may call the address: the view's name, `-` where there is none."""
    return request.resolver_match.view_name if request.resolver_match else "-"
