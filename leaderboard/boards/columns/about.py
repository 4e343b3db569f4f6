"""What every board says of its rows' systems: what they are, who made them, and what their teams declare of them."""

from collections.abc import Callable
from typing import Any

from django.utils.translation import gettext_noop as _

from leaderboard.boards.facets import HOUSE
from leaderboard.boards.model import ABOUT, Column, Value
from leaderboard.models import DECLARED_NUMBERS, Entry, architecture_choices
from leaderboard.results.board_rows.entry_rows import REPORTED

SELF_REPORTED = _("self-reported: what its team declared, or a publication says")

ARCHITECTURES = dict(architecture_choices())
TRAININGS = {value: str(label) for value, label in Entry.Training.choices}


def _by(line: Any) -> Value:
    return (line.about.source if line.ranked_in == REPORTED else line.about.team or HOUSE) or None


def _weights(line: Any) -> Value:
    if line.about.closed_api:
        return "closed interface"
    return None if line.about.open_weights is None else "open" if line.about.open_weights else "closed"


def _declared(name: str, per: float) -> Callable[[Any], Value]:
    """What makes the value of a number that teams declare."""

    def value(line: Any) -> Value:
        declared = getattr(line.about, name)
        return None if declared is None else declared / per

    return value


ABOUT_SYSTEM = (
    Column(
        "architecture",
        _("Architecture"),
        ABOUT,
        "text",
        cell=lambda line: ARCHITECTURES.get(line.about.architecture, line.about.architecture),
    ),
    Column(
        "provenance",
        _("Provenance"),
        ABOUT,
        "text",
        note=_("how the numbers were obtained"),
        cell=lambda line: line.provenance,
    ),
    Column("by", _("By"), ABOUT, "text", note=_("the team, or the publication that reports it"), cell=_by),
    Column("weights", _("Weights"), ABOUT, "text", note=_("whether the weights are public"), cell=_weights),
    Column(
        "licence",
        _("Licence"),
        ABOUT,
        "text",
        note=SELF_REPORTED,
        cell=lambda line: line.about.licence or None,
    ),
)
#: How its team trained it, as far as it says so: of one result, since it may differ by dataset.
TRAINING = Column(
    "training-data",
    _("Training data"),
    ABOUT,
    "text",
    note=SELF_REPORTED,
    cell=lambda line: TRAININGS.get(line.about.training) if line.about.training else None,
)
#: Numbers that teams declare.
DECLARED = tuple(
    Column(
        each.key,
        each.head,
        ABOUT,
        "figure",
        unit=f"{each.unit}, declared",
        note=SELF_REPORTED,
        cell=_declared(each.name, each.per),
    )
    for each in DECLARED_NUMBERS
    if each.key
)
#: The number of the model's weights, counted here or declared.
SIZE = Column(
    "parameters",
    _("Model parameters"),
    ABOUT,
    "figure",
    unit="M",
    note=_("counted here, else self-reported; 0 for lexical systems"),
    cell=lambda line: None if line.parameters is None else line.parameters / 1e6,
)
