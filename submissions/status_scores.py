"""The published values of a job's result, beside those of its dataset's baseline."""

from __future__ import annotations

from dataclasses import dataclass

from leaderboard.boards.measures import better
from leaderboard.boards.word_pieces import is_word_pieces
from leaderboard.models import Entry
from leaderboard.publishing import comparison_group, published_scores
from submissions.models import Job


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


def scores_of_job(job: Job, entry: Entry | None, compare: bool) -> list[Score]:
    """What the job's run has: of a seed its own, whether or not the set is there."""
    if job.evaluation is not None:
        scores, group = published_scores(job.evaluation, job.dataset), comparison_group(job.evaluation)
        baseline = (_baseline(job.dataset_id, group, job.entry_id) if compare else None) or {}
        return [Score(measure, value, baseline.get(measure)) for measure, value in scores.items()]
    return scores_of_entry(entry, compare, job) if entry is not None else []


def scores_of_entry(entry: Entry, compare: bool, job: Job | None = None) -> list[Score]:
    """What boards show of the entry: of a seed set the means with their deviations."""
    baseline = word_pieces = None
    if compare:
        baseline = _baseline(entry.dataset_id, entry.comparison_group, entry.pk)
        word_pieces = _word_pieces(job, entry) if job is not None else None
    return [
        Score(
            measure,
            value,
            (baseline or {}).get(measure),
            (word_pieces or {}).get(measure),
            entry.deviations.get(measure),
        )
        for measure, value in entry.scores.items()
    ]


def _word_pieces(job: Job, entry: Entry) -> dict[str, float] | None:
    """The published scores of BM25 over word pieces, where the job gives it and its result may be seen as this one."""
    found = (each for each in job.further_entries.all() if is_word_pieces(each.configuration))
    return next((each.scores for each in found if each.visibility == entry.visibility), None)


def _baseline(dataset_id: int, comparison_group: str, entry_id: int | None) -> dict[str, float] | None:
    """The published scores of the entry that deltas in the group are taken against, unless that is this one."""
    return (
        Entry.objects.public()
        .filter(dataset=dataset_id, comparison_group=comparison_group, is_baseline=True)
        .exclude(pk=entry_id or 0)
        .values_list("scores", flat=True)
        .first()
    )
