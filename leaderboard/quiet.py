"""What the log makes of answers that refuse a request."""

from __future__ import annotations

import logging


class RefusalsAreCalm(logging.Filter):
    """Puts Django's warning of an answer 4xx at INFO: a visitor's mistake is nothing that an operator must look at."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Lower the record's level; False where that level is not logged."""
        if 400 <= getattr(record, "status_code", 0) < 500 and record.levelno == logging.WARNING:
            record.levelno, record.levelname = logging.INFO, logging.getLevelName(logging.INFO)
            return logging.getLogger(record.name).isEnabledFor(logging.INFO)
        return True
