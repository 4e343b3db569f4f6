"""Whether what runs in this container is well: exit status 0, else 1 and why. For HEALTHCHECK.

The stdlib alone, so that asking costs nothing.

`web`: the site answers /healthz. `worker`: it lives, by the file that it touches every ten seconds, whether its
database answers or not.
"""

from __future__ import annotations

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

#: The file is touched every ten seconds; after so many without it the worker is not alive.
SILENCE = 45.0


def web() -> str:
    """Why the site is not well; empty when it is. One that answers 503 lives: its database or broker does not."""
    host = os.environ.get("ALLOWED_HOSTS", "localhost").split(",")[0].lstrip(".") or "localhost"
    request = urllib.request.Request("http://127.0.0.1:8000/healthz", headers={"Host": host})
    try:
        with urllib.request.urlopen(request, timeout=5):  # noqa: S310
            return ""
    except urllib.error.HTTPError as error:
        return (
            ""
            if error.code == 503 and "status" in json.loads(error.read() or b"{}")
            else f"answers {error.code}"
        )
    except OSError as error:
        return f"does not answer: {error}"


def worker() -> str:
    """Why the worker is not well; empty when it is."""
    file = Path(os.environ.get("HEARTBEAT_FILE", "/tmp/runboard-heartbeat"))  # noqa: S108
    try:
        silent = time.time() - file.stat().st_mtime
    except OSError:
        return f"{file} is not there: the worker has not begun"
    return f"silent for {silent:.0f} s" if silent > SILENCE else ""


if __name__ == "__main__":
    reason = {"web": web, "worker": worker}[sys.argv[1]]()
    if reason:
        print(reason)
    sys.exit(1 if reason else 0)
