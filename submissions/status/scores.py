"""What is told of a submission's result, to anyone and on any way: page, API, mail and webhook ask here alone.

Scores are the published values, beside those of the dataset's baseline. Of a result that a competition holds they are
those that the team has already, never the new ones.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from evaluation.measures.registry import parse_measure
from evaluation.runs.problems import SHALLOW
from leaderboard.boards.system.page import is_word_pieces
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.datasets.lists import NONE, Baseline
from leaderboard.models import Entry
from leaderboard.results.publishing.publication import best_shown_result
from leaderboard.results.values import comparison_group, published_scores
from submissions.models import Job

#: What is said of a result that a competition's Ladder holds.
NO_CHANGE = "no significant change"


@dataclass(frozen=True, slots=True)
class Score:
    """A published value beside the dataset's baseline; `delta` is None where there is none to compare with.

    `word_pieces` is what BM25 over word pieces had in the same job, where that gives it; of a seed set's mean
    `deviation` is the sample standard deviation over its seeds.
    """

    measure: str
    value: float
    baseline: float | None = None
    word_pieces: float | None = None
    deviation: float | None = None
    #: How the baseline is called.
    beside: str = ""
    #: Number of documents in the run's longest ranking, if the measure reads more.
    capped_at: int | None = None

    @property
    def lower_is_better(self) -> bool:
        """Whether a smaller value is the better one, as for Hole@10."""
        return better(self.measure) == "lower"

    @property
    def delta(self) -> float | None:
        """The difference to the baseline."""
        return None if self.baseline is None else self.value - self.baseline

    @property
    def relative(self) -> float | None:
        """The difference as a share of the baseline, in percent."""
        return 100 * (self.value / self.baseline - 1) if self.baseline else None

    @property
    def beside_word_pieces(self) -> Score:
        """The same value with BM25 over word pieces as its baseline."""
        return Score(self.measure, self.value, self.word_pieces)


def is_held(entry: Entry | None) -> bool:
    """Return whether the result is not told, since it is no significant change."""
    return entry is not None and entry.visibility == Entry.Visibility.HELD


def describe_held(entry: Entry) -> str:
    """What the team of a held result is told, with what it may take for its score."""
    if entry.waits_for_its_turn:
        return (
            "Scored. It waits for its turn: of teams that are new here, a limited number of results a day is told of "
            "a dataset with hidden judgements, and of a competition none before its baseline is published. As a rule "
            "it is decided within 24 hours. Nothing is lost."
        )
    if best_shown_result(entry) is None:
        return "No significant change. Nothing else is told of this result."
    return "No significant change. The scores are those that your team has already; nothing else is told."


def scores_of_job(job: Job, entry: Entry | None, compare: bool) -> list[Score]:
    """What the job's run has: of a seed its own, whether or not the set is there.

    Over hidden judgements nothing is told of a seed, before its set or after: each would be a reading of its own.
    """
    if job.seed and (job.dataset.hidden or is_held(entry)):
        return []
    if job.evaluation is None:
        return scores_of_entry(entry, compare, job) if entry is not None else []
    group = comparison_group(job.evaluation)
    baseline = _baseline(job.dataset_id, group, job.entry_id) if compare else NONE
    return _scores(published_scores(job.evaluation, job.dataset), baseline, job)


def scores_of_entry(entry: Entry, compare: bool, job: Job | None = None) -> list[Score]:
    """What boards show of the entry: of a seed set the means with their deviations.

    Of a held one it is what its team has already.
    """
    if is_held(entry):
        known = best_shown_result(entry)
        return scores_of_entry(known, compare) if known is not None else []
    baseline, word_pieces = NONE, None
    if compare:
        baseline = _baseline(entry.dataset_id, entry.comparison_group, entry.pk)
        # BM25 over word pieces, if the job has it and its result may be seen as this one.
        further = job.further_entries.all() if job is not None else ()
        found = (each for each in further if is_word_pieces(each.configuration))
        word_pieces = next((each.scores for each in found if each.visibility == entry.visibility), None)
    return _scores(entry.scores, baseline, job, word_pieces or {}, entry.deviations)


def _scores(
    values: Mapping[str, float],
    baseline: Baseline,
    job: Job | None,
    word_pieces: Mapping[str, float] = MappingProxyType({}),
    deviations: Mapping[str, float] = MappingProxyType({}),
) -> list[Score]:
    """Put values by measure beside those of the baseline."""
    report = job.report if job is not None else {}
    codes = [problem["code"] for problem in report.get("problems", [])]
    # The depth of the run, if a measure of the dataset reads more documents.
    depth = report["statistics"].get("depth") if SHALLOW in codes else None
    return [
        Score(
            measure,
            value,
            baseline.scores.get(measure),
            word_pieces.get(measure),
            deviations.get(measure),
            baseline.name,
            depth if depth is not None and parse_measure(measure).depth > depth else None,
        )
        for measure, value in values.items()
    ]


def _baseline(dataset_id: int, comparison_group: str, entry_id: int | None) -> Baseline:
    """The entry that deltas in the group are taken against, unless that is this one, with its published scores."""
    found = (
        Entry.objects.public()
        .filter(dataset=dataset_id, comparison_group=comparison_group, is_baseline=True)
        .exclude(pk=entry_id or 0)
        .values_list("system__name", "dataset__name", "scores")
        .first()
    )
    return Baseline(baseline_label(found[0], found[1]), found[2]) if found else NONE
