"""Facts about datasets and benchmarks that their boards depend on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from evaluation.text.languages import known_language_code
from leaderboard.results.board_rows.rows import Revision


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """Columns of a dataset, and facts about its judgments."""

    name: str
    hidden: bool
    primary_measure: str
    measures: Sequence[str]
    language: str = ""
    version_id: int | None = None
    qrels_id: int | None = None
    #: Whether scores are means over the public part of the judged queries.
    competition: bool = False
    #: The judges, each with its share of the judgments, and their agreement; of hidden judgments only the names.
    judges: Sequence[str] = ()
    agreement: Sequence[str] = ()
    #: Judged relevant documents per topic; None if unknown or hidden.
    relevant_per_query: float | None = None


@dataclass(frozen=True, slots=True)
class Member:
    """A dataset of a board in one revision: the dataset itself, a member of a benchmark, or a part of another dataset.

    `counted` and `stand_ins`, the measures that it shows instead of others, are those of a benchmark. `parts` are the
    datasets whose mean it is. Until all of them are `listed`, the whole has no score.
    """

    dataset_id: int
    slug: str
    facts: DatasetFacts
    revision: Revision = field(compare=False)
    counted: bool = True
    stand_ins: Mapping[str, str] = field(default_factory=dict)
    domain: str = ""
    task: str = ""
    parts: Sequence[Member] = ()
    listed: bool = True

    def measure(self, wanted: str) -> str:
        """Return the measure that it shows if the board shows `wanted`."""
        return self.stand_ins.get(wanted, wanted)

    @property
    def facets(self) -> dict[str, str]:
        """Values of OF_DATASETS."""
        language = known_language_code(self.facts.language)
        return {"language": language, "domain": self.domain, "task": self.task}

    @property
    def key(self) -> str:
        """Text that changes with everything that a board shows of the dataset."""
        parts = ",".join(part.key for part in self.parts)
        own = (
            self.dataset_id,
            self.slug,
            self.counted,
            dict(self.stand_ins),
            self.domain,
            self.task,
            self.listed,
        )
        return f"{self.revision.key} {own} {self.facts} [{parts}]"


@dataclass(frozen=True, slots=True)
class BenchmarkFacts:
    """Columns of a benchmark, and its members.

    `source_id` is the only publication whose reported figures it shows, if any. `efficiency_from` is the dataset whose
    measured costs it shows, by default the one that most systems share. A view omits the members in `left_out`.
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
        """Number of counted members, including those that a view omits."""
        return sum(member.counted for member in (*self.members, *self.left_out))
