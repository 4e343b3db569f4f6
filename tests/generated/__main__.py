"""A large board of made-up numbers on a developer's own site: `DEBUG=1 python -m tests.generated`."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

import django
from django.conf import settings


def main(arguments: Sequence[str] | None = None) -> None:
    """Generate the board, or remove it. Made-up numbers have no place on a site that others see."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--systems", type=int, default=1000)
    parser.add_argument("--datasets", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--remove", action="store_true", help="remove the generated board")
    asked = parser.parse_args(arguments)
    if not settings.EMBEDDED or not settings.DEBUG:
        raise SystemExit(
            "This fills the site with made-up results, so it runs in development only: on the embedded site "
            "(ALLOWED_HOSTS not set) and with DEBUG=1 in the environment."
        )
    from tests.generated.board import generate_board, remove_generated_board

    if asked.remove:
        print(f"{remove_generated_board()} generated datasets removed.")
        return
    if asked.systems < 1 or asked.datasets < 1:
        raise SystemExit("At least one system and one dataset are needed.")
    try:
        made = generate_board(asked.systems, asked.datasets, asked.seed)
    except ValueError as error:
        raise SystemExit(f"{error} (--remove).") from error
    print(
        f"{made.entries:,} results of {made.systems:,} systems on {made.datasets} datasets: "
        f"{made.benchmark.get_absolute_url()}"
    )


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "leaderboard.settings")
    django.setup()
    main()
