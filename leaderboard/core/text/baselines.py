"""How baselines are called, wherever something is compared with them."""

from collections.abc import Iterable


def baseline_label(system: str, dataset: str) -> str:
    """How the baseline of a dataset is called: as its system, by the names of both.

    The system of a run that was imported as the baseline alone has the dataset's name behind its own.
    """
    return system.removesuffix(f" ({dataset})")


def baselines_label(names: Iterable[str]) -> str:
    """How baselines of these names are called together: by the one name that they have, or as the baseline."""
    different = {name for name in names if name}
    return different.pop() if len(different) == 1 else "the baseline"
