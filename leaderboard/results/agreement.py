"""Agreement of scored results with the scores that publications report for the same model."""

import re
from collections import defaultdict
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from leaderboard.core.text.numbers import DECIMALS, difference, format_value, signed
from leaderboard.results.board_rows.entry_rows import REPORTED, EntryRow
from leaderboard.results.values import is_word_pieces

#: Largest absolute difference from a published score that needs no explanation.
TOLERANCE = 0.01
#: A model of the Hugging Face hub: `owner/name`, or a URL of one of its pages or files.
_HUB = r"(?:https?://(?:www\.)?(?:huggingface\.co|hf\.co)/)?(?!collections/|datasets/|papers/|spaces/)"
_MODEL = re.compile(rf"{_HUB}([^/?#:]+/[^/?#]+)", re.IGNORECASE)
#: Variants with truncated vectors, which publications report under names of their own, if at all.
_TRUNCATED = re.compile(r"\d+ dimensions\b")
#: Split and dataset commit in the locator of a result of MTEB. The importer omits the split if it is the board's.
_COLLECTION = re.compile(r"(?:split ([^;]+); )?dataset ([0-9a-f]{12})")


class PublishedScore(NamedTuple):
    """Published score of a result's model, from the newest `source`.

    `difference` is the result's score minus this score. `others` are the values and names of further sources.
    """

    value: float
    difference: float
    source: str
    others: Sequence[tuple[str, str]] = ()

    @property
    def differs(self) -> bool:
        return abs(self.difference) > TOLERANCE

    def as_data(self) -> dict[str, float | str]:
        """Return the value, difference, and source for exports."""
        return {"value": self.value, "difference": self.difference, "source": self.source}

    @property
    def text(self) -> dict[str, str]:
        """Numbers formatted for pages; `distance` is the absolute difference."""
        return {
            "value": format_value(self.value, DECIMALS),
            "difference": signed(self.difference, DECIMALS),
            "distance": format_value(abs(self.difference), DECIMALS),
        }


@lru_cache(4096)
def hub_model(address: str) -> str:
    """Return the lower-case `owner/name` of a Hugging Face model from its name or URL, or an empty string."""
    match = _MODEL.match(address)
    return match[1].lower() if match else ""


def published_scores(entries: Sequence[EntryRow], current_group: str, measure: str) -> dict[int, PublishedScore]:
    """Return the published scores of current scored results by entry id, for the same dataset and measure.

    Args:
        entries: Rows of one dataset's board.
        current_group: The board's current comparison group; results of other groups are not compared.
        measure: Canonical name of the measure.
    """
    reported: defaultdict[str, list[EntryRow]] = defaultdict(list)
    for entry in entries:
        if entry.provenance == REPORTED and entry.is_public and measure in entry.scores:
            reported[hub_model(entry.model)].append(entry)
    reported.pop("", None)
    scores = {}
    for entry in entries if reported else ():
        rows = [row for row in reported.get(hub_model(entry.model), ()) if _is_comparable(row, entry)]
        if rows and measure in entry.scores and entry.comparison_group == current_group:
            newest, *others = sorted(rows, key=lambda row: (row.source_year or 0, row.published, row.pk), reverse=True)
            value = newest.scores[measure]
            further_values = [(format_value(row.scores[measure], DECIMALS), row.source) for row in others]
            delta = difference(entry.scores[measure], value) or 0.0
            scores[entry.pk] = PublishedScore(value, delta, newest.source, list(dict.fromkeys(further_values)))
    return scores


def _is_comparable(reported: EntryRow, scored: EntryRow) -> bool:
    """Return whether a reported result of a model may be for the variant, split, and dataset version of a scored one.

    Unstated splits and versions count as the board's own. Commits are compared only within MTEB's repositories,
    because copies of a dataset in other repositories have other commits.
    """
    if is_word_pieces(scored.configuration) or _TRUNCATED.match(scored.configuration):
        return False
    stated = _COLLECTION.match(reported.locator)
    split, commit = stated.groups() if stated else (None, "")
    repository, _, own_commit = scored.version_label.partition("@")
    is_other_version = repository.startswith("mteb/") and not own_commit.startswith(commit)
    return split in (None, scored.split) and not is_other_version
