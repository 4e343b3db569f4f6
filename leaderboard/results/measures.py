"""Selection of the measures that a dataset's board shows."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from django.db import transaction

from evaluation.core.problems import Problem
from evaluation.measures.registry import DEFAULT_MEASURES, UnknownMeasureError, parse_measure
from leaderboard.core.audit import record
from leaderboard.core.measures import better, canonical_name
from leaderboard.datasets.problems import problem
from leaderboard.models import Dataset, Evaluation
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.protection import MAX_MEASURES
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.values import showable_means

#: Default secondary measures of datasets with hidden judgments.
_HIDDEN_EXTRAS = ("R@100", "R@1000")


class RefusedMeasures(ValueError):
    """A selection of measures that a board cannot show; `problems` lists every reason."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(item.sentences() for item in self.problems))


@transaction.atomic
def set_measures(dataset: Dataset, primary: str, secondary: Sequence[str]) -> list[str]:
    """Set the measures of a dataset's board, republish its scores, and return the measures in ir_measures' spelling.

    Stored results keep the measures that were computed when they were scored; others are missing on the board. Records
    the change in the audit log. Does nothing if the selection is unchanged.

    Raises:
        RefusedMeasures: For unknown measures, for more than three or any that reveals which documents are judged if
            judgments are hidden, or for measures that need missing answers or subtopics. The dataset does not change.
    """
    lock_boards([dataset.pk])
    dataset.refresh_from_db()
    problems = list(check_measures(primary, secondary, hidden=dataset.hidden))
    qrels = dataset.current_qrels
    if not problems and qrels is not None:
        inputs = {"has_answers": bool(qrels.answers_sha256), "has_subtopics": bool(qrels.subtopics_sha256)}
        problems += check_inputs([primary, *secondary], has_texts=bool(qrels.version.corpus_sha256), **inputs)
    if problems:
        raise RefusedMeasures(problems)
    # An empty list means the primary measure alone here; `shown_measures` would add the defaults.
    selection = shown_measures(primary, list(secondary) or [primary], hidden=dataset.hidden)
    before = {"measures": list(dataset.measures), "primary_measure": dataset.primary_measure}
    after = {"measures": selection, "primary_measure": selection[0]}
    if before == after:
        return selection
    dataset.measures, dataset.primary_measure = selection, selection[0]
    dataset.save(update_fields=["measures", "primary_measure"])
    refresh_scores(dataset)
    record("measures", dataset, dataset=dataset, before=before, after=after)
    return selection


def describe_shown(dataset: Dataset, measures: Sequence[str]) -> str:
    """Return a notice with the board's measures, and with those that no result on the current qrels has."""
    evaluations = Evaluation.objects.filter(qrels=dataset.current_qrels_id).defer("values")
    available_measures = set[str]().union(*(showable_means(evaluation, dataset) for evaluation in evaluations))
    missing_measures = [name for name in measures if name not in available_measures]
    notice = f"{dataset} now shows {', '.join(measures)}."
    if not missing_measures or not evaluations:
        return notice
    names = " and ".join(missing_measures)
    return f"{notice} No result has {names} yet. Only runs that are scored from now on will have them."


def shown_measures(primary: str, secondary: Sequence[str], *, hidden: bool) -> list[str]:
    """Return the measures in ir_measures' spelling, the primary one first, without repetitions.

    An empty `secondary` selects the defaults.
    """
    primary_name = parse_measure(primary).name
    if secondary:
        secondary_names = [parse_measure(name).name for name in secondary]
    else:
        secondary_names = list(_HIDDEN_EXTRAS if hidden else DEFAULT_MEASURES)
    return list(dict.fromkeys([primary_name, *secondary_names]))


def check_measures(primary: str, secondary: Sequence[str], *, hidden: bool) -> Iterator[Problem]:
    """Yield the problems of a selection of measures.

    Unknown measures are always problems. With hidden judgments, so are measures that reveal judgments, and too many
    measures.
    """
    has_unknown = False
    for name in (primary, *secondary):
        try:
            measure = parse_measure(name)
        except UnknownMeasureError as error:
            has_unknown = True
            yield problem("unknown_measure", str(error), "Choose one that the page “Measures” lists.")
            continue
        if hidden and (measure.family.reveals_judgements or measure.family.spans_queries):
            yield problem(
                "revealing_measure",
                f"{measure.name} reveals which documents or queries are judged",
                "Choose another measure, or open the judgments.",
            )
    if hidden and better(primary) == "lower":
        yield problem(
            "lower_is_better",
            f"{canonical_name(primary)} cannot be the primary measure of a dataset with hidden judgments, because "
            "lower values are better",
            "Choose a primary measure for which higher values are better, or open the judgments.",
        )
    if not has_unknown and hidden and len(shown_measures(primary, secondary, hidden=True)) > MAX_MEASURES:
        yield problem(
            "too_many_measures",
            f"with hidden judgments at most {MAX_MEASURES} measures are shown, the primary one included",
            "Every measure reveals more about the judgments. Choose fewer measures, or open the judgments.",
        )


def check_inputs(
    measures: Sequence[str], *, has_answers: bool, has_texts: bool, has_subtopics: bool
) -> Iterator[Problem]:
    """Yield problems of measures that need correct answers, texts, or judgments by subtopic, which a dataset lacks."""
    families = {}
    for name in measures:
        with suppress(UnknownMeasureError):
            measure = parse_measure(name)
            families[measure.name] = measure.family
    requirements = (
        ("reads_texts", has_answers and has_texts, "answers", "answers or texts", "corpus.jsonl and answers.jsonl"),
        ("reads_answers", has_answers, "answers", "correct answers", "answers.jsonl"),
        ("reads_subtopics", has_subtopics, "subtopics", "judgments by subtopic", "subtopic-qrels.txt"),
    )
    for flag, is_available, code, inputs, files in requirements:
        names = [name for name, family in families.items() if getattr(family, flag)]
        if names and not is_available:
            yield problem(
                f"missing_{code}",
                f"{' and '.join(names)} cannot be computed, because the dataset lacks {inputs}",
                f"Import the collection with {files}, or choose other measures.",
                count=len(names),
            )
