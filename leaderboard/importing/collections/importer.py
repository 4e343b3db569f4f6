"""`import_dataset`: from a folder or zip to a dataset that waits for its baseline, in one transaction."""

import errno
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from django.contrib.auth.models import AnonymousUser
from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.text import slugify

from evaluation.collections.document_ids import DocumentIds
from evaluation.core.problems import InvalidContent, InvalidRun, Problem
from evaluation.runs.score import ScoringTarget, check_run
from evaluation.runs.stored import run_name
from evaluation.text import analyser_for
from evaluation.text.languages import known_language_code
from leaderboard.core.audit import actor, record
from leaderboard.core.permissions import conflicting_visibility_settings
from leaderboard.core.storage.runs import StoredRun, store_run
from leaderboard.core.storage.store import work_folder
from leaderboard.core.work_requests import request_work
from leaderboard.datasets.files import offered_files
from leaderboard.datasets.problems import in_file, missing_documents, problem
from leaderboard.datasets.qrels import current_or_next_qrels
from leaderboard.importing.collections import storing
from leaderboard.importing.collections.inspection import InspectedCollection, Inspection, check_split
from leaderboard.importing.collections.source import ImportOptions, Progress, open_source
from leaderboard.importing.collections.storing import StoredContent
from leaderboard.importing.collections.twins import (
    NOT_COMPARED,
    check_overlap,
    check_twin,
    permit_comparison,
    withheld_splits,
)
from leaderboard.judgements.disclosure import may_see_counts, record_compared
from leaderboard.judgements.rescoring.campaigns import is_needed, start_rescore, under_way
from leaderboard.models import Architecture, Dataset, DatasetVersion, Entry, Protection, Qrels, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.measures import check_measures, check_reads_texts, shown_measures
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.visibility import name_baseline
from leaderboard.systems.baselines import request_baseline
from leaderboard.systems.records import house_system

#: Settings that decide what a score means: fixed once there are scores.
_DECIDING = ("relevance_level", "drop_self_matches", "candidates_only")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """What the import did: `changes` in words, empty where the same bytes and settings were there already.

    `offered` are the files that everyone may have now; `left_out` the splits that are not among them, because the
    scored one is hidden. `remarks` are sentences on the scored judgments of this import.
    """

    dataset: Dataset
    version: DatasetVersion
    qrels: Qrels | None
    changes: tuple[str, ...]
    baseline_requested: bool
    offered: tuple[str, ...]
    left_out: tuple[str, ...]
    remarks: tuple[str, ...] = ()

    def disclosure(self) -> str:
        """Which files everyone may have, and which judgements were left out of them."""
        text = f"Offered to everyone: {', '.join(self.offered) or 'nothing'}."
        if self.left_out:
            text += (
                f" Left out: the judgements of {', '.join(self.left_out)}; beside hidden judgements only splits "
                "named train…, dev… or valid… are offered."
            )
        return text


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """A run that passed its check and is in the store."""

    name: str
    stored: StoredRun
    lines: int
    tag: str


class DiskSpaceError(Exception):
    """The disk is full, which is no fault of the collection's."""


def import_dataset(
    path: Path, options: ImportOptions, progress: Progress = lambda stage, share: None
) -> ImportResult:
    """Take in the collection at `path`, or bring the dataset up to date with it. Within `audit.acting`: where hidden
    judgements are kept, what is told depends on who acts.

    Raises evaluation.core.problems.InvalidContent with every problem found, or DiskSpaceError; nothing is then changed.
    """
    existing = Dataset.objects.filter(slug=options.slug).first()
    options = _resolved(options, existing)
    if wrong_split := list(check_split(options.split)):
        raise InvalidContent.of(*wrong_split)
    refusals = list(_check_options(options, existing))
    with work_folder("import") as work:
        try:
            with open_source(path, options, work, progress) as source:
                permit_comparison(source.qrels, options, existing)
                inspected = Inspection(source, options, work, progress).read()
                refusals += check_overlap(inspected, options, existing)
                refusals += _check_answers(inspected, options, existing)
                if source.queries is not None:
                    refusals += check_twin(inspected, source.queries, options, existing)
                if refusals:
                    raise InvalidContent.of(*refusals)
                run = read_baseline_run(options.baseline, inspected) if options.baseline else None
                stored = storing.store_content(source, inspected, options, work, progress)
                return _record(options, inspected, stored, run)
        except InvalidContent as error:
            raise InvalidContent.of(*dict.fromkeys([*refusals, *error.report.problems])) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            message = "Nothing was imported: the disk is full. Free some space and try again."
            raise DiskSpaceError(message) from error


def _resolved(options: ImportOptions, dataset: Dataset | None) -> ImportOptions:
    """Return the options, with what decides the reading taken from the dataset where it was not said."""
    known = dataset is not None and (dataset.current_version_id or dataset.state != Dataset.State.REPORTED)
    decided: dict[str, Any] = {
        name: getattr(dataset, name) if known else default
        for name, default in (("runs_only", False), ("hidden", True), ("candidates_only", False))
        if getattr(options, name) is None
    }
    language = options.language and known_language_code(options.language)
    options = replace(options, language=language, **decided)
    if options.candidates_only and not (options.primary or (dataset and dataset.current_version_id)):
        return replace(options, primary="AP")  # as MTEB's re-ranking tasks
    return options


def _check_options(options: ImportOptions, dataset: Dataset | None) -> Iterator[Problem]:
    primary = options.primary or (dataset.primary_measure if dataset else "nDCG@10")
    yield from check_measures(primary, options.measures, hidden=bool(options.hidden))
    if options.baseline is not None and not options.baseline.is_file():
        yield problem("baseline", f"there is no file {options.baseline}", "Name a run file.")
    if options.protection == Protection.COMPETITION and not options.hidden:
        message, hint = (
            "a competition needs hidden judgements",
            "Leave out --open, or --protection competition.",
        )
        yield problem("nothing_to_protect", message, hint)
    try:
        Dataset(slug=options.slug, **{"name": options.slug, **options.columns()}).full_clean(
            exclude=["measures"], validate_unique=False
        )
    except ValidationError as error:
        for name, messages in error.message_dict.items():
            yield problem(f"option_{name}", f"{name}: {' '.join(messages)}", "Correct the option.")
    if dataset is not None:
        yield from _check_changes(options, dataset)


def _check_answers(
    inspected: InspectedCollection, options: ImportOptions, dataset: Dataset | None
) -> Iterator[Problem]:
    """Yield a problem for each measure that looks for answers in texts, if either is missing."""
    asked = [options.primary or (dataset.primary_measure if dataset else ""), *options.measures]
    if dataset is not None and dataset.current_version_id and not (options.primary or options.measures):
        asked = dataset.measures
    kept = dataset.current_qrels.answers_sha256 if dataset and dataset.current_qrels else ""
    if not (inspected.corpus and (inspected.answers or kept)):
        yield from check_reads_texts(asked)


def _check_changes(options: ImportOptions, dataset: Dataset) -> Iterator[Problem]:
    """Yield changes that would make what is on the board untrue."""

    def changes(name: str) -> bool:
        return getattr(options, name) not in (None, getattr(dataset, name))

    slug, qrels = dataset.slug, dataset.current_qrels
    for name in ("protection", "public_share"):
        if dataset.current_version_id and changes(name):
            yield problem(
                "protection_changed",
                f"{slug} is there already: an import cannot change how its judgements are protected",
                "Use the action on datasets in the admin, or manage.py protect_dataset.",
            )
    if qrels and options.hidden and not dataset.hidden:
        message = f"the judgements of {slug} are open; whoever downloaded them has them"
        hint = "Keep the dataset open, or import unseen judgements under another slug."
        yield problem("already_open", message, hint)
    if dataset.hidden and qrels and qrels.split != options.split:
        yield problem(
            "split_changed",
            f"{slug} is scored on hidden judgements of the split {qrels.split}; "
            f"with --split {options.split} those would be offered to everyone",
            f"Say --split {qrels.split}, or import the other split under another slug.",
        )
    yield from _opened(dataset, options)
    scored = dataset.entries.exclude(provenance=Entry.Provenance.REPORTED).exists()
    for name in filter(changes, _DECIDING if scored else ()):
        message = f"{name} cannot change: {slug} has entries scored with {getattr(dataset, name)}"
        yield problem("already_scored", message, "Import the collection under another slug.")


@transaction.atomic
def _record(
    options: ImportOptions, inspected: InspectedCollection, stored: StoredContent, run: BaselineRun | None
) -> ImportResult:
    """Store the rows of an import."""
    dataset, changes = _settings(options)
    version = dataset.versions.filter(content_sha256=inspected.content_sha256).first()
    if version is None:
        version = storing.create_version(dataset, inspected, stored, options)
        changes.append(f"version {version.number}")
    judged = inspected.judgements.get(options.split)
    qrels, stays = _choose_qrels(dataset, version, inspected, options, changes)
    storing.set_corpus(version, stored)
    if (judged is not None or qrels is None) and not stays and storing.set_topics(version, inspected, stored):
        changes.append("topics")
    present = dataset.current_version_id, dataset.current_qrels_id
    moved = present != (version.pk, qrels.pk if qrels else None)
    if moved:
        changes.append(f"board on {version}" + (f", {qrels.split} qrels v{qrels.number}" if qrels else ""))
    dataset.current_version, dataset.current_qrels = version, qrels
    # A dataset that is public stays so while the baseline of its new content is made.
    if qrels is None:
        dataset.state = Dataset.State.COLLECTING
    elif dataset.runs_only:
        dataset.state = Dataset.State.PUBLISHED
    dataset.save()
    if storing.offer_content(version, stored, options.split, with_scored=not stays):
        changes.append("files")
    requested = _request_bm25(dataset, qrels, changes, moved=moved)
    if requested and not (moved or "language" in changes):
        changes.append("BM25 requested again")
    named, run_requested = _take_run(dataset, run, qrels, is_judged=judged is not None)
    if run_requested:
        changes.append("baseline run")
    if changes:
        board_changed(dataset, Kind.IMPORTED)
    if named:
        changes.append("baseline run")
    remarks = missing_documents(judged.statistics(dataset.relevance_level)) if judged is not None else []
    if not dataset.runs_only and (remark := analyser_for(dataset.language).remark):
        remarks.append(remark)
    return ImportResult(
        dataset,
        version,
        qrels,
        tuple(changes),
        requested or run_requested,
        offered=tuple(file.name for file in offered_files(dataset, AnonymousUser())),
        left_out=withheld_splits(inspected, options),
        remarks=tuple(remarks),
    )


def _choose_qrels(
    dataset: Dataset,
    version: DatasetVersion,
    inspected: InspectedCollection,
    options: ImportOptions,
    changes: list[str],
) -> tuple[Qrels | None, bool]:
    """Return the judgements of the board, and whether it stays on the present ones until a rescore is decided.

    An import without judgements takes none away. Raises InvalidContent while a rescore on yet other judgements is not
    decided.
    """
    present = dataset.current_qrels if dataset.current_version_id == version.pk else None
    judged = inspected.judgements.get(options.split)
    if judged is None:
        return present, False
    answers = inspected.answers.sha256 if inspected.answers else ""
    wanted = current_or_next_qrels(version, options.split, judged, answers_sha256=answers)
    if dataset.current_version_id != version.pk or not is_needed(dataset, wanted):
        return wanted, False
    other = under_way(dataset)
    if other is None:
        start_rescore(dataset, wanted, "The collection was imported with other judgements.")
        changes.append(f"rescore on {wanted.split} qrels v{wanted.number}")
    elif other.to_qrels_id != wanted.pk:
        message = (
            f"{dataset.slug} is being rescored on qrels v{other.to_qrels.number}, other judgements than these"
        )
        hint = "Switch its board to those or throw them away, then import again."
        raise InvalidContent.of(problem("rescore_under_way", message, hint))
    return present, True


def _take_run(
    dataset: Dataset, run: BaselineRun | None, qrels: Qrels | None, *, is_judged: bool
) -> tuple[bool, bool]:
    """Return whether the board's result of the run became the baseline, and whether the run is to be scored as such.

    Raises InvalidContent if there are no judgements, or if the acting person may not learn the run's score.
    """
    if run is None:
        return False, False
    if qrels is None:
        message = "a baseline run is scored on judgements, and there are none yet"
        raise InvalidContent.of(problem("baseline", message, "Name the run when you import the judgements."))
    # Its score would tell who cannot read the stored judgements which topics they judge.
    guessed = not is_judged and dataset.hidden and not dataset.runs_only
    if guessed and not may_see_counts(dataset, actor().person):
        raise InvalidContent.of(NOT_COMPARED)
    if name_run_on_board(dataset, run):
        return True, False
    if not request_baseline_run(dataset, run):
        return False, False
    record_compared(f"a baseline run for {dataset}", dataset, qrels)  # no quota counts it
    return False, True


def _request_bm25(dataset: Dataset, qrels: Qrels | None, changes: Sequence[str], *, moved: bool) -> bool:
    """Request the dataset's BM25 if it has no baseline and none is requested; return whether it was requested now.

    A dataset that an earlier attempt left in preparation is tried again, and one whose language changed gets another
    BM25. BM25 is retrieved even without judgments, because a pool may be drawn from it.
    """
    waiting = WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE, dataset=dataset, taken_at=None)
    unfinished = dataset.state == Dataset.State.PREPARING and not waiting.exists()
    other_language = "language" in changes
    if dataset.runs_only or not (moved or unfinished or other_language):
        return False
    baselines = Entry.objects.filter(dataset=dataset, is_baseline=True, evaluation__qrels=qrels)
    if qrels is not None and baselines.exists() and not other_language:
        return False
    request_baseline(dataset)
    return True


def _opened(dataset: Dataset, options: ImportOptions) -> Iterator[Problem]:
    """Yield options that would show what the dataset's agreement keeps back."""
    hint = "Correct the option, or take the agreement out of force."
    for name, message in conflicting_visibility_settings(dataset, options.columns()).items():
        yield problem(f"option_{name}", f"{name}: {message}", hint)


def _settings(options: ImportOptions) -> tuple[Dataset, list[str]]:
    """Return the dataset's row, locked, with its settings brought up to date, and what changed.

    Raises InvalidContent where an agreement came into force meanwhile that the options would go against.
    """
    lock_boards(Dataset.objects.filter(slug=options.slug).values_list("pk", flat=True))
    dataset = Dataset.objects.filter(slug=options.slug).first()
    if dataset is not None and (opened := list(_opened(dataset, options))):
        raise InvalidContent.of(*opened)
    wanted: dict[str, Any] = options.columns()
    if options.twin_of:
        wanted["twin_of_id"] = Dataset.objects.values_list("pk", flat=True).get(slug=options.twin_of)
    first = dataset is None or dataset.current_version_id is None
    if dataset is None:
        dataset = Dataset(slug=options.slug, name=options.slug, state=Dataset.State.PREPARING)
    created = dataset.pk is None
    if first or options.primary or options.measures or wanted["hidden"] != dataset.hidden:
        # A dataset known from papers alone brings their measure, which is not a choice of this site's curator.
        measures = shown_measures(
            options.primary or dataset.primary_measure, options.measures, hidden=wanted["hidden"]
        )
        wanted |= {"primary_measure": measures[0], "measures": measures}
    changed = sorted(name for name, value in wanted.items() if getattr(dataset, name) != value)
    before = {name: getattr(dataset, name) for name in changed}
    for name in changed:
        setattr(dataset, name, wanted[name])
    dataset.save()
    if changed and not created:
        after = {name: wanted[name] for name in changed}
        record("settings", dataset, dataset=dataset, before=before, after=after)
    if {"hidden", "measures"} & set(changed):
        refresh_scores(dataset)
    return dataset, ["dataset"] if created else changed


def read_baseline_run(path: Path, inspected: InspectedCollection) -> BaselineRun:
    """Check the run against the collection and store it. Raises InvalidContent with its problems."""
    documents = DocumentIds.open(inspected.id_table) if inspected.id_table else None
    try:
        report = check_run(path, ScoringTarget(query_ids=inspected.topics.ids, document_ids=documents))
    except InvalidContent as error:
        raise InvalidContent.of(*in_file(path.name, error.report.problems)) from error
    if not report.valid:
        raise InvalidRun.of(*in_file(path.name, report.errors))
    tags = report.statistics.tags
    return BaselineRun(
        run_name(path, tags), store_run(path), report.statistics.lines, tags[0] if tags else ""
    )


def name_run_on_board(dataset: Dataset, run: BaselineRun) -> bool:
    """Make the result that the board has of this very run the baseline; False if there is none, or it is one already.

    A second result of the same run would be compared with itself, and count as one more test.
    """
    same = Entry.objects.public().filter(
        dataset=dataset, evaluation__qrels=dataset.current_qrels, evaluation__run__sha256=run.stored.sha256
    )
    # A team's own result goes before the site's, which was imported as the baseline alone.
    rows = same.select_related("dataset", "system").order_by("published_at", "pk")
    first = min(rows, key=lambda entry: entry.system.team_id is None, default=None)
    if first is None or first.is_baseline:
        return False
    name_baseline(first)
    return True


def request_baseline_run(dataset: Dataset, run: BaselineRun) -> bool:
    """Ask for the run to be scored as the baseline; False if it is the baseline, or asked for, already."""
    baselines = Entry.objects.filter(
        dataset=dataset, is_baseline=True, evaluation__qrels=dataset.current_qrels
    )
    if baselines.filter(evaluation__run__sha256=run.stored.sha256).exists():
        return False
    system = house_system(
        slug=slugify(f"{run.name}-{dataset.slug}".replace(".", "-"))[:120],
        name=f"{run.name[: max(1, 117 - len(dataset.name))]} ({dataset.name})"[:120],
        architecture=Architecture.OTHER,
        description=f"The run that the curator named as the baseline of {dataset.name}.",
        parameters={},
        training_declared=False,
    )
    payload = {
        "run_sha256": run.stored.sha256,
        "size": run.stored.size,
        "lines": run.lines,
        "system_slug": system.slug,
        "baseline": True,
        "tag": run.tag,
    }
    waiting = WorkRequest.objects.filter(kind=WorkRequest.Kind.SCORE, dataset=dataset, taken_at=None)
    if any(request.payload == payload for request in waiting):
        return False
    request_work(WorkRequest.Kind.SCORE, dataset, payload)
    return True
