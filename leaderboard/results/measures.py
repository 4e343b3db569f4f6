"""Which measures a dataset's board shows, changed by a curator; what is shown is published anew from what is stored."""

from collections.abc import Iterator, Sequence

from django.db import transaction

from evaluation.core.problems import Problem
from evaluation.measures.registry import DEFAULT_MEASURES, UnknownMeasureError, parse_measure
from leaderboard.core.audit import record
from leaderboard.core.measures import canonical_name
from leaderboard.datasets.problems import problem
from leaderboard.models import Dataset, Evaluation
from leaderboard.results.board_rows.revisions import lock_boards
from leaderboard.results.protection import MOST_MEASURES
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.values import REVEALING

#: Shown beside the primary measure where judgements are hidden.
_HIDDEN_EXTRAS = ("R@100", "R@1000")


class RefusedMeasures(ValueError):
    """Measures that a board cannot show; `problems` say all that is wrong."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = list(problems)
        super().__init__(" ".join(each.sentences() for each in self.problems))


@transaction.atomic
def set_measures(dataset: Dataset, primary: str, others: Sequence[str]) -> list[str]:
    """Show these measures, the primary one first; they are returned in ir_measures' spelling.

    Where judgements are hidden at most three, and none that tells which documents are judged. Raises RefusedMeasures,
    and nothing is changed. A stored result has what was computed when it was scored; what it lacks is missing.
    """
    lock_boards([dataset.pk])
    dataset.refresh_from_db()
    problems = list(check_measures(primary, others, hidden=dataset.hidden))
    if not problems and dataset.current_qrels is not None and not dataset.current_qrels.answers_sha256:
        problems += check_reads_texts([primary, *others])
    if problems:
        raise RefusedMeasures(problems)
    # Of an empty list the defaults would be taken: here it means the primary measure alone.
    wanted = shown_measures(primary, list(others) or [primary], hidden=dataset.hidden)
    before = {"measures": list(dataset.measures), "primary_measure": dataset.primary_measure}
    after = {"measures": wanted, "primary_measure": wanted[0]}
    if before == after:
        return wanted
    dataset.measures, dataset.primary_measure = wanted, wanted[0]
    dataset.save(update_fields=["measures", "primary_measure"])
    refresh_scores(dataset)
    record("measures", dataset, dataset=dataset, before=before, after=after)
    return wanted


def describe_shown(dataset: Dataset, measures: Sequence[str]) -> str:
    """What the board shows now, and which of these measures no present result has: none was computed by then."""
    stored = Evaluation.objects.filter(qrels=dataset.current_qrels_id)
    lacking = [name for name in measures if not stored.filter(means__has_key=name).exists()]
    said = f"{dataset} shows {', '.join(measures)} now."
    if not lacking or not stored.exists():
        return said
    names = " and ".join(lacking)
    return f"{said} No result has {names} yet: runs that are scored from now on have it, earlier ones do not."


def shown_measures(primary: str, asked: Sequence[str], *, hidden: bool) -> list[str]:
    """The measures, the primary one first, in ir_measures' spelling."""
    first = parse_measure(primary).name
    if asked:
        others = [parse_measure(name).name for name in asked]
    else:
        others = list(_HIDDEN_EXTRAS if hidden else DEFAULT_MEASURES)
    return list(dict.fromkeys([first, *others]))


def check_measures(primary: str, asked: Sequence[str], *, hidden: bool) -> Iterator[Problem]:
    """What is wrong with the measures asked for."""
    unknown = False
    for name in (primary, *asked):
        try:
            measure = parse_measure(name)
        except UnknownMeasureError as error:
            unknown = True
            yield problem(
                "unknown_measure", str(error), "The page “Measures” lists those that can be chosen."
            )
            continue
        if hidden and measure.name.startswith(REVEALING):
            yield problem(
                "revealing_measure",
                f"{measure.name} tells which documents are judged",
                "Choose another measure, or open the judgements.",
            )
    if not unknown and hidden and len(shown_measures(primary, asked, hidden=True)) > MOST_MEASURES:
        yield problem(
            "too_many_measures",
            f"with hidden judgements at most {MOST_MEASURES} measures are shown, the primary one included",
            "Every measure is another look at the judgements; choose fewer, or open them.",
        )


def check_reads_texts(asked: Sequence[str]) -> Iterator[Problem]:
    """Which measures look for answers in texts, for a dataset that lacks answers or texts."""
    known = [canonical_name(name) for name in dict.fromkeys(asked)]
    reading = [name for name in known if name.startswith("Answer@") or name.endswith("kt")]
    if reading:
        yield problem(
            "missing_answers",
            f"{' and '.join(reading)} cannot be computed: there are no answers, or no texts to look for them in",
            "Import the collection with its corpus.jsonl and an answers.jsonl, or choose other measures.",
            count=len(reading),
        )
