"""A worker process without a broker: it looks for work by itself. Run as `python -m tests.submissions.shard_worker`."""

from __future__ import annotations

import os
import socket
import time

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")


def main() -> None:
    """Work until killed, with the toy engine among the others."""
    django.setup()
    from submissions.jobs.checkpoints import running as checking
    from submissions.jobs.runner import drain_queue
    from submissions.sandbox import running
    from tests.submissions import toy_engine

    toy_engine.register()
    running._BOOTSTRAP = toy_engine.BOOTSTRAP
    checking.is_checked = lambda note: True  # the toy's checkpoint has no weights that a library could look at
    print("ready", flush=True)
    while True:
        drain_queue("cpu", f"{socket.gethostname()}:{os.getpid()}")
        time.sleep(0.05)


if __name__ == "__main__":
    main()
