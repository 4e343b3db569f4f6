"""Display names of baselines."""

from collections.abc import Iterable


def baseline_label(system: str, dataset: str) -> str:
    """Return a baseline's display name: the name of its system.

    Systems that were created for an imported baseline carry the dataset's name in parentheses, which is removed.
    """
    return system.removesuffix(f" ({dataset})")


def baselines_label(names: Iterable[str]) -> str:
    """Return the common display name of several baselines, or “the baseline” if they differ."""
    unique_names = {name for name in names if name}
    return unique_names.pop() if len(unique_names) == 1 else "the baseline"
