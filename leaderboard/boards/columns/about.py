"""Columns about a row's system on every board: type, origin, and declared properties."""

from functools import partial
from typing import Any

from django.utils.translation import gettext_noop as _

from leaderboard.boards.model import ABOUT, Column, Value
from leaderboard.boards.state import THIS_SITE_NAME
from leaderboard.models import DECLARED_NUMBERS, Entry, architecture_choices
from leaderboard.results.board_rows.entry_rows import REPORTED

SELF_REPORTED = _("self-reported by its team or publication")

ARCHITECTURES = dict(architecture_choices())
TRAININGS = {value: str(label) for value, label in Entry.Training.choices}


def _owner(line: Any) -> Value:
    return (line.entry.source if line.ranked_in == REPORTED else line.entry.team or THIS_SITE_NAME) or None


def _weights(line: Any) -> Value:
    if line.entry.closed_api:
        return "closed API"
    return None if line.entry.open_weights is None else "open" if line.entry.open_weights else "closed"


def _in_units(value: float | None, unit: float) -> Value:
    return None if value is None else value / unit


ABOUT_SYSTEM = (
    Column(
        "architecture",
        _("Architecture"),
        ABOUT,
        "text",
        cell=lambda line: ARCHITECTURES.get(line.entry.architecture, line.entry.architecture),
    ),
    Column(
        "provenance",
        _("Provenance"),
        ABOUT,
        "text",
        note=_("how the numbers were obtained"),
        cell=lambda line: line.provenance,
    ),
    Column("by", _("By"), ABOUT, "text", note=_("the team, or the publication that reports it"), cell=_owner),
    Column("weights", _("Weights"), ABOUT, "text", note=_("whether the weights are public"), cell=_weights),
    Column("licence", _("License"), ABOUT, "text", note=SELF_REPORTED, cell=lambda line: line.entry.licence or None),
)
#: Declared training exposure. It belongs to a single result, because it may differ by dataset.
TRAINING = Column(
    "training-data",
    _("Training data"),
    ABOUT,
    "text",
    note=SELF_REPORTED,
    cell=lambda line: TRAININGS.get(line.entry.training) if line.entry.training else None,
)
#: Numbers that teams declare.
DECLARED_COLUMNS = tuple(
    Column(
        number.key,
        number.head,
        ABOUT,
        "figure",
        unit=f"{number.unit}, declared",
        note=SELF_REPORTED,
        cell=partial(lambda number, line: _in_units(getattr(line.entry, number.name), number.per), number),
    )
    for number in DECLARED_NUMBERS
    if number.key
)
#: Number of the model's parameters, counted or declared.
SIZE = Column(
    "parameters",
    _("Model parameters"),
    ABOUT,
    "figure",
    unit="M",
    note=_("counted here, else self-reported; 0 for lexical systems"),
    cell=lambda line: _in_units(line.parameters, 1e6),
)
#: Size of the model's files.
FILE_SIZE = Column(
    "model-bytes",
    _("Model size"),
    ABOUT,
    "figure",
    unit="MB",
    note=_("files of the checkpoint; 0 for lexical systems"),
    cell=lambda line: _in_units(line.model_bytes, 1e6),
)
