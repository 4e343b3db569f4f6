"""What a board needs to know of its dataset or benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evaluation.text.languages import known_language_code
from leaderboard.results.board_rows.rows import Revision


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What a board needs of its dataset."""

    name: str
    hidden: bool
    primary_measure: str
    measures: Sequence[str]
    language: str = ""
    version_id: int | None = None
    qrels_id: int | None = None
    #: Whether scores are means over the public part of the judged queries.
    competition: bool = False
    #: Who judged, each with the share that is theirs, and how far they agree; of hidden judgements the names alone.
    judges: Sequence[str] = ()
    agreement: Sequence[str] = ()
    #: How many judged relevant documents a topic has; None where that is not told.
    relevant_per_query: float | None = None


@dataclass(frozen=True, slots=True)
class DatasetPart:
    """A dataset that another one is the mean of: a forum of CQADupStack."""

    dataset_id: int
    slug: str
    facts: DatasetFacts
    revision: Revision = field(compare=False)
    #: Whether it is published; until all are, the whole has no score.
    listed: bool = True


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of the benchmark, in a `revision`. `stand_ins` names the measures it shows instead of others.

    `parts` are those of a dataset whose scores are means of others' scores.
    """

    dataset_id: int
    slug: str
    facts: DatasetFacts
    counted: bool
    stand_ins: Mapping[str, str]
    revision: Revision = field(compare=False)
    language: str = ""
    domain: str = ""
    task: str = ""
    parts: Sequence[DatasetPart] = ()

    def measure(self, wanted: str) -> str:
        """The measure that it shows where the board shows `wanted`."""
        return self.stand_ins.get(wanted, wanted)

    @property
    def facets(self) -> dict[str, str]:
        """Its values of OF_DATASETS."""
        return {"language": known_language_code(self.language), "domain": self.domain, "task": self.task}


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """What a board needs of its benchmark. `source_id` is the publication whose reported figures it shows, if one.

    `efficiency_from` is the dataset whose measured costs it shows, None for the one that most systems share. `left_out`
    are the datasets that a view does not choose.
    """

    name: str
    measure: str
    members: Sequence[Member]
    source_id: int | None = None
    efficiency_from: int | None = None
    left_out: Sequence[Member] = ()

    @property
    def counted(self) -> list[Member]:
        """The members that aggregates are over."""
        return [member for member in self.members if member.counted]

    @property
    def all_counted(self) -> int:
        """How many members count where the view chooses none."""
        return sum(member.counted for member in (*self.members, *self.left_out))
