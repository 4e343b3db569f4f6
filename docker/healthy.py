"""Health check of a container, for HEALTHCHECK: exit status 0 if healthy, else 1 and the reason.

Uses only the standard library, so that the check is cheap. `web` requests /healthz. `worker` checks the age of the
file that a worker touches every 15 seconds, whether or not its database answers.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

#: Seconds without a touch of the file after which the worker counts as dead.
SILENCE = 60.0


def web() -> str:
    """Return why the site is unhealthy, or an empty text. Status 503 is healthy: its database or broker is down."""
    host = os.environ.get("ALLOWED_HOSTS", "localhost").split(",")[0].lstrip(".") or "localhost"
    request = urllib.request.Request("http://127.0.0.1:8000/healthz", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310
            return ""
    except urllib.error.HTTPError as error:
        return "" if error.code == 503 and "status" in json.loads(error.read() or b"{}") else f"answers {error.code}"
    except OSError as error:
        return f"does not answer: {error}"


def worker() -> str:
    """Return why the worker is unhealthy, or an empty text."""
    file = Path(os.environ.get("HEARTBEAT_FILE", "/tmp/runboard-heartbeat"))  # noqa: S108
    try:
        silent = time.time() - file.stat().st_mtime
    except OSError:
        return f"{file} does not exist: the worker has not started"
    return f"silent for {silent:.0f} s" if silent > SILENCE else ""


if __name__ == "__main__":
    reason = {"web": web, "worker": worker}[sys.argv[1]]()
    if reason:
        print(reason)
    sys.exit(1 if reason else 0)
