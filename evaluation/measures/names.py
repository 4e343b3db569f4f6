"""Names of measures: ir_measures' spelling is the canonical one; trec_eval's, BEIR's and MTEB's are understood."""

from __future__ import annotations

import re
from dataclasses import dataclass

from evaluation.measures.ranking import Ranking, Values
from evaluation.measures.registry import FAMILIES, Family, rank_biased_precision

#: Changes whenever a stored value could change: a formula, the order of ties, what a missing query scores.
SPEC_VERSION = "1"

#: What every dataset is scored with; the first is the primary measure.
DEFAULT_MEASURES = (
    "nDCG@10", "nDCG@100", "AP", "RR@10", "R@100", "R@1000", "R_cap@100", "P@10", "Success@5", "Success@20", "Hole@10",
)  # fmt: skip

_HIGHEST_CUTOFF = 100_000
_NAME = re.compile(r"\s*([A-Za-z_]+(?:-[A-Za-z]+)?)\s*(?:\(([^()]*)\))?\s*(?:@\s*([0-9]{1,6}))?\s*")
_PERSISTENCE = re.compile(r"p=(0?\.[0-9]{1,4})")
_LEVEL = re.compile(r"rel\s*=\s*([0-9]{1,4})")


class UnknownMeasureError(ValueError):
    """A name that is no measure's."""


@dataclass(frozen=True)
class Measure:
    """One measure: a family with its cutoff, and its own relevance level where the name gives one."""

    family: Family
    cutoff: int | None = None
    level: int | None = None

    @property
    def name(self) -> str:
        """The canonical name, such as `nDCG@10`, `P(rel=2)@10`, `nDCG(dcg='exp-log2')@10`."""
        parameters = [self.family.parameter] if self.family.parameter else []
        if self.level is not None:
            parameters.append(f"rel={self.level}")
        brackets = f"({','.join(parameters)})" if parameters else ""
        return f"{self.family.name}{brackets}" + (f"@{self.cutoff}" if self.cutoff else "")

    def __str__(self) -> str:
        return self.name

    @property
    def aliases(self) -> tuple[str, ...]:
        """Other spellings of this very measure (trec_eval, BEIR, MTEB)."""
        if self.level is not None:
            return ()
        fitting = [alias for alias in self.family.aliases if ("{k}" in alias) == bool(self.cutoff)]
        return tuple(name for alias in fitting if (name := alias.format(k=self.cutoff)) != self.name)

    @property
    def trec_eval(self) -> str | None:
        """The name under which trec_eval (and pytrec_eval) give this value, if they do."""
        fitting = [
            alias for alias in self.family.trec_eval if ("{k}" in alias) == bool(self.cutoff) and alias
        ]
        return fitting[0].format(k=self.cutoff) if fitting else None

    @property
    def description(self) -> str:
        """One sentence for a page."""
        return self.family.description

    @property
    def formula(self) -> str:
        """The definition as a line of mathematics."""
        return self.family.definition

    @property
    def source(self) -> str:
        """Where the definition comes from."""
        return self.family.source

    @property
    def higher_is_better(self) -> bool:
        """Whether a larger value is a better one."""
        return self.family.higher_is_better

    def values(self, ranking: Ranking) -> Values:
        """The measure for every judged query (rows of the qrels), as float64."""
        level = ranking.relevance_level if self.level is None else self.level
        return self.family.formula(ranking, self.cutoff, level)


def parse_measure(text: str) -> Measure:
    """The measure of that name, in any spelling. Raises UnknownMeasureError, which says what is possible."""
    measure = _parse_canonical(text) or _parse_alias(text.strip())
    if measure is None:
        raise UnknownMeasureError(f"{text!r} is no measure known here. {_POSSIBLE}")
    if measure.cutoff is None and measure.family.cutoff == "required":
        raise UnknownMeasureError(f"{text!r} needs a cutoff, for example {measure.family.name}@10")
    if measure.cutoff is not None and not 0 < measure.cutoff <= _HIGHEST_CUTOFF:
        raise UnknownMeasureError(f"the cutoff of {text!r} is not between 1 and {_HIGHEST_CUTOFF:,}")
    return measure


def _parse_canonical(text: str) -> Measure | None:
    match = _NAME.fullmatch(text)
    if not match:
        return None
    name, brackets, cutoff = match.groups()
    level, others = None, []
    for part in filter(None, (piece.strip() for piece in (brackets or "").split(","))):
        if found := _LEVEL.fullmatch(part):
            level = int(found.group(1))
        else:
            others.append(part.replace('"', "'").replace(" ", "").lower())
    family = FAMILIES.get(f"{name.lower()}({','.join(others)})") or _rank_biased(name, others)
    if family is None or (cutoff and family.cutoff == "none") or (level is not None and not family.binary):
        return None
    return Measure(family, int(cutoff) if cutoff else None, level)


def _rank_biased(name: str, parameters: list[str]) -> Family | None:
    """RBP with a persistence of its own, where this is one: a number between 0 and 1 of at most four decimals."""
    found = _PERSISTENCE.fullmatch(",".join(parameters))
    if name.lower() != "rbp" or (parameters and found is None):
        return None
    persistence = float(found.group(1)) if found else 0.8
    return rank_biased_precision(persistence) if persistence > 0 else None


def _parse_alias(text: str) -> Measure | None:
    for family in FAMILIES.values():
        for alias in family.aliases:
            pattern = re.escape(alias).replace(re.escape("{k}"), "([0-9]{1,6})")
            match = re.fullmatch(pattern, text, re.IGNORECASE)
            if match:
                return Measure(family, int(match.group(1)) if match.groups() else None)
    return None


_POSSIBLE = "Known: " + ", ".join(
    f"{family.name}{f'({family.parameter})' if family.parameter else ''}{'' if family.cutoff == 'none' else '@k'}"
    for family in FAMILIES.values()
)
