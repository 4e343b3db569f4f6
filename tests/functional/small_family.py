"""A supervisor of small commands, as a process of its own so that a test can kill it.

Arguments: the folder of state, a JSON list of {"name", "code"} with what Python is to run, and "ready" if the start of
the site is over.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from leaderboard.management.supervisor import processes
from leaderboard.management.supervisor.processes import Command, ProcessGroup, run


def main() -> int:
    """Run until told to stop."""
    folder = Path(sys.argv[1])
    commands = [Command(part["name"], [sys.executable, "-c", part["code"]]) for part in json.loads(sys.argv[2])]

    def live(group: ProcessGroup) -> None:
        group.watchdog.add_path(folder / "remove-me")
        group.start(*commands)
        group.keeps_trying = sys.argv[3:] == ["ready"]
        print("started", flush=True)
        group.run_until(lambda: False)

    processes.QUICK_SECONDS, processes.QUICK_ENDS = 5, 3
    processes.BACKOFF, processes.LONGEST_BACKOFF = 0.1, 0.2
    processes.ENDING_SECONDS = processes.ENDING_LAST_SECONDS = 1
    return run(folder, "a small family", Path.cwd(), live)


if __name__ == "__main__":
    sys.exit(main())
