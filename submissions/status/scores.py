"""Public scores of a submission's results, the single source for pages, the API, emails, and webhooks.

Scores are published values compared with the dataset's baseline. For results that a competition withholds, they are the
team's earlier scores.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from evaluation.measures.registry import parse_measure
from evaluation.runs.problems import SHALLOW
from leaderboard.core.measures import better
from leaderboard.core.text.baselines import baseline_label
from leaderboard.datasets.lists import NONE, Baseline
from leaderboard.models import Entry
from leaderboard.results.publishing.publication import best_shown_result
from leaderboard.results.values import comparison_group, is_word_pieces, published_scores
from submissions.models import Job

#: Text for a result that a competition's Ladder withholds.
NO_CHANGE = "no significant change"


@dataclass(frozen=True, slots=True)
class Score:
    """Published value of a measure, compared with the dataset's baseline.

    `delta` is None without a baseline. `word_pieces` is the value of BM25 over word pieces from the same job, if
    available. `deviation` is the sample standard deviation over the seeds of a seed set.
    """

    measure: str
    value: float
    baseline: float | None = None
    word_pieces: float | None = None
    deviation: float | None = None
    #: Name of the baseline.
    baseline_name: str = ""
    #: Number of documents in the run's longest ranking, if the measure reads more.
    capped_at: int | None = None

    @property
    def lower_is_better(self) -> bool:
        """Whether smaller values are better, as for Hole@10."""
        return better(self.measure) == "lower"

    @property
    def delta(self) -> float | None:
        """Difference from the baseline."""
        return None if self.baseline is None else self.value - self.baseline

    @property
    def relative(self) -> float | None:
        """Difference from the baseline in percent of the baseline."""
        return 100 * (self.value / self.baseline - 1) if self.baseline else None

    @property
    def word_piece_comparison(self) -> Score:
        """The same value compared with BM25 over word pieces."""
        return Score(self.measure, self.value, self.word_pieces)


def is_held(entry: Entry | None) -> bool:
    """Return whether the result is withheld as no significant change."""
    return entry is not None and entry.visibility == Entry.Visibility.HELD


def describe_held(entry: Entry) -> str:
    """Return the explanation shown to the team of a withheld result."""
    if entry.waits_for_its_turn:
        return (
            "Scored. The result waits for its release: for new teams only a limited number of results per day is "
            "released on a hidden dataset, and in a competition none before its baseline is published. This usually "
            "takes less than 24 hours, and the result is not lost."
        )
    if best_shown_result(entry) is None:
        return "No significant change. Runboard reports nothing else about this result."
    return "No significant change. The scores shown are your team's earlier ones; the new ones are withheld."


def job_scores(job: Job, entry: Entry | None, compare: bool) -> list[Score]:
    """Return the scores of a job's run, including a single seed of an incomplete seed set.

    Scores of single seeds on hidden datasets are never returned, since each would reveal more of the judgments.
    """
    if job.seed and (job.dataset.hidden or is_held(entry)):
        return []
    if job.evaluation is None:
        return entry_scores(entry, compare, job) if entry is not None else []
    baseline = _find_baseline(job.dataset.pk, comparison_group(job.evaluation), job.entry_id) if compare else NONE
    return _build_scores(published_scores(job.evaluation, job.dataset), baseline, job)


def entry_scores(entry: Entry, compare: bool, job: Job | None = None) -> list[Score]:
    """Return the published scores of an entry; for seed sets, the means with their deviations.

    For a withheld entry, these are its team's earlier scores. If `compare` is true, they are compared with the baseline
    and, if `job` is given, with BM25 over word pieces from the same job.
    """
    if is_held(entry):
        shown_entry = best_shown_result(entry)
        return entry_scores(shown_entry, compare) if shown_entry is not None else []
    baseline, word_pieces = NONE, None
    if compare:
        baseline = _find_baseline(entry.dataset_id, entry.comparison_group, entry.pk)
        # BM25 over word pieces, if the job includes it with the same visibility.
        further_entries = job.further_entries.all() if job is not None else ()
        word_piece_entries = (row for row in further_entries if is_word_pieces(row.configuration))
        word_pieces = next((row.scores for row in word_piece_entries if row.visibility == entry.visibility), None)
    return _build_scores(entry.scores, baseline, job, word_pieces or {}, entry.deviations)


def _build_scores(
    values: Mapping[str, float],
    baseline: Baseline,
    job: Job | None,
    word_pieces: Mapping[str, float] = MappingProxyType({}),
    deviations: Mapping[str, float] = MappingProxyType({}),
) -> list[Score]:
    """Build scores from values by measure, with the values of the baseline, BM25 over word pieces, and deviations.

    If the run is shallower than a measure, the score states its depth.
    """
    report = job.report if job is not None else {}
    codes = [problem["code"] for problem in report.get("problems", [])]
    # Depth of the run, if the report warns that a measure reads more documents.
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


def _find_baseline(dataset_id: int, comparison_group: str, entry_id: int | None) -> Baseline:
    """Return the comparison group's public baseline with its published scores.

    Return NONE if there is no baseline, or if it is `entry_id` itself.
    """
    row = (
        Entry.objects.public()
        .filter(dataset=dataset_id, comparison_group=comparison_group, is_baseline=True)
        .exclude(pk=entry_id or 0)
        .values_list("system__name", "dataset__name", "scores")
        .first()
    )
    return Baseline(baseline_label(row[0], row[1]), row[2]) if row else NONE
