"""Import of a folder or zip as a dataset that waits for its baseline (`import_dataset`), in one transaction."""

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
from leaderboard.judgements.rescoring.campaigns import get_pending_rescore, must_rescore, start_rescore
from leaderboard.models import Architecture, Dataset, DatasetVersion, Entry, Protection, Qrels, WorkRequest
from leaderboard.results.board_rows.revisions import Kind, board_changed, lock_boards
from leaderboard.results.measures import check_inputs, check_measures, shown_measures
from leaderboard.results.publishing.publication import refresh_scores
from leaderboard.results.publishing.visibility import name_baseline
from leaderboard.results.slices import set_tags
from leaderboard.systems.baselines import request_baseline
from leaderboard.systems.records import house_system

#: Settings that affect scores and cannot change once there are any.
_SCORING_SETTINGS = ("relevance_level", "drop_self_matches", "candidates_only")


@dataclass(frozen=True, slots=True)
class ImportResult:
    """Result of an import; `changes` is empty if the same content and settings were already stored.

    `offered` are the public files, and `left_out` the splits that are withheld because the scored one is hidden.
    `remarks` are sentences on the scored judgments of this import.
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
        """Return a sentence on the public files and the withheld judgments."""
        text = f"Public files: {', '.join(self.offered) or 'none'}."
        if self.left_out:
            text += (
                f" Withheld: the judgments of {', '.join(self.left_out)}. With hidden judgments, only splits named "
                "train…, dev…, or valid… are public."
            )
        return text


@dataclass(frozen=True, slots=True)
class BaselineRun:
    """A valid and stored run."""

    name: str
    stored: StoredRun
    lines: int
    tag: str


class DiskSpaceError(Exception):
    """The disk is too full for an import."""


def import_dataset(path: Path, options: ImportOptions, progress: Progress = lambda stage, share: None) -> ImportResult:
    """Import the collection at `path` as a new dataset or as an update, and request its baseline.

    Call this within `audit.acting`. With hidden judgments, the content of error messages depends on the acting user's
    permissions.

    Raises:
        evaluation.core.problems.InvalidContent: With all problems; nothing is changed.
        DiskSpaceError: If the disk is full; nothing is changed.
    """
    dataset = Dataset.objects.filter(slug=options.slug).first()
    options = _complete_options(options, dataset)
    wrong_split, refusals = list(check_split(options.split)), list(_check_options(options, dataset))
    if wrong_split:
        raise InvalidContent.build(*wrong_split, *refusals)
    with work_folder("import") as work:
        try:
            with open_source(path, options, work, progress) as source:
                permit_comparison(source.qrels, options, dataset)
                collection = Inspection(source, options, work, progress).read()
                refusals += check_overlap(collection, options, dataset)
                refusals += _check_inputs(collection, options, dataset)
                if source.queries is not None:
                    refusals += check_twin(collection, source.queries, options, dataset)
                if refusals:
                    raise InvalidContent.build(*refusals)
                run = read_baseline_run(options.baseline, collection) if options.baseline else None
                content = storing.store_content(source, collection, options, work, progress)
                return _store_rows(options, collection, content, run)
        except InvalidContent as error:
            raise InvalidContent.build(*dict.fromkeys([*refusals, *error.report.problems])) from error
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            message = "The import failed because the disk is full. Free some space and try again."
            raise DiskSpaceError(message) from error


def _complete_options(options: ImportOptions, dataset: Dataset | None) -> ImportOptions:
    """Return the options with a canonical language and without missing `runs_only`, `hidden`, and `candidates_only`.

    Missing ones are taken from the dataset if it was imported before, or else have defaults. At the first import, the
    default measure for re-ranking candidates is AP.
    """
    is_known = dataset is not None and (dataset.current_version_id or dataset.state != Dataset.State.REPORTED)
    defaults: dict[str, Any] = {
        name: getattr(dataset, name) if is_known else default
        for name, default in (("runs_only", False), ("hidden", True), ("candidates_only", False))
        if getattr(options, name) is None
    }
    language = options.language and known_language_code(options.language)
    options = replace(options, language=language, **defaults)
    if options.candidates_only and not (options.primary or (dataset and dataset.current_version_id)):
        return replace(options, primary="AP")  # as in MTEB's re-ranking tasks
    return options


def _check_options(options: ImportOptions, dataset: Dataset | None) -> Iterator[Problem]:
    """Yield problems of the options themselves and of their changes to the existing dataset."""
    primary = options.primary or (dataset.primary_measure if dataset else "nDCG@10")
    yield from check_measures(primary, options.measures, hidden=bool(options.hidden))
    if options.baseline is not None and not options.baseline.is_file():
        yield problem("baseline", f"the file {options.baseline} does not exist", "Enter the path of a run file.")
    if options.protection == Protection.COMPETITION and not options.hidden:
        hint = "Leave out --open, or --protection competition."
        yield problem("nothing_to_protect", "a competition needs hidden judgments", hint)
    try:
        Dataset(slug=options.slug, **{"name": options.slug, **options.columns()}).full_clean(
            exclude=["measures"], validate_unique=False
        )
    except ValidationError as error:
        for name, messages in error.message_dict.items():
            yield problem(f"option_{name}", f"{name}: {' '.join(messages)}", f"Correct --{name}.".replace("_", "-"))
    if dataset is not None:
        yield from _check_changes(options, dataset)


def _check_inputs(
    collection: InspectedCollection, options: ImportOptions, dataset: Dataset | None
) -> Iterator[Problem]:
    """Yield problems of measures that require answers, texts, or subtopics, which the collection lacks."""
    measures = [options.primary or (dataset.primary_measure if dataset else ""), *options.measures]
    if dataset is not None and dataset.current_version_id and not (options.primary or options.measures):
        measures = dataset.measures
    stored, judgements = dataset.current_qrels if dataset else None, collection.judgements.get(options.split)
    # Stored answers and subtopics apply only if the judgments do not change.
    stored_inputs = stored if stored and (judgements is None or judgements.sha256 == stored.sha256) else Qrels()
    yield from check_inputs(
        measures,
        has_answers=bool(collection.answers or stored_inputs.answers_sha256),
        has_texts=bool(collection.corpus),
        has_subtopics=bool(collection.subtopics or stored_inputs.subtopics_sha256),
    )


def _check_changes(options: ImportOptions, dataset: Dataset) -> Iterator[Problem]:
    """Yield problems for options that cannot change for an existing dataset.

    These are its protection, opened judgments, the split of hidden judgments, visibilities that conflict with an
    agreement, and once it has scores, settings that affect scores.
    """

    def changes(name: str) -> bool:
        return getattr(options, name) not in (None, getattr(dataset, name))

    qrels = dataset.current_qrels
    for name in ("protection", "public_share"):
        if dataset.current_version_id and changes(name):
            yield problem(
                "protection_changed",
                f"{dataset.name} already exists, and an import cannot change the protection of its judgments",
                "Use the action on datasets in the admin, or manage.py protect_dataset.",
            )
    if qrels and options.hidden and not dataset.hidden:
        message = f"the judgments of {dataset.name} are already open and may have been downloaded"
        hint = "Keep the dataset open, or import unseen judgments under another slug."
        yield problem("already_open", message, hint)
    if dataset.hidden and qrels and qrels.split != options.split:
        yield problem(
            "split_changed",
            f"{dataset.name} is scored on hidden judgments of the split {qrels.split}; "
            f"with --split {options.split} those would become public",
            f"Use --split {qrels.split}, or import the other split under another slug.",
        )
    yield from _agreement_problems(dataset, options)
    has_scores = dataset.entries.exclude(provenance=Entry.Provenance.REPORTED).exists()
    for name in filter(changes, _SCORING_SETTINGS if has_scores else ()):
        message = f"{name} cannot change: {dataset.name} has entries scored with {getattr(dataset, name)}"
        yield problem("already_scored", message, "Import the collection under another slug.")


@transaction.atomic
def _store_rows(
    options: ImportOptions, collection: InspectedCollection, files: StoredContent, run: BaselineRun | None
) -> ImportResult:
    """Store the rows of an import, request its baseline, and return the result, with the names of all changes.

    Without a tag file, those of an earlier import remain. The board moves to the new version and judgments, unless
    results have to be rescored first.
    """
    dataset, changes = _update_settings(options)
    version = dataset.versions.filter(content_sha256=collection.content_sha256).first()
    if version is None:
        version = storing.create_version(dataset, collection, files, options)
        changes.append(f"version {version.number}")
    judgements = collection.judgements.get(options.split)
    qrels, keeps_qrels = _choose_qrels(dataset, version, collection, options, changes)
    storing.set_corpus(version, files)
    if (judgements is not None or qrels is None) and not keeps_qrels and storing.set_topics(version, collection, files):
        changes.append("topics")
    current_content = dataset.current_version_id, dataset.current_qrels_id
    is_moved = current_content != (version.pk, qrels.pk if qrels else None)
    if is_moved:
        changes.append(f"board on {version}" + (f", {qrels.split} qrels v{qrels.number}" if qrels else ""))
    dataset.current_version, dataset.current_qrels = version, qrels
    # A published dataset stays public while the baseline of its new content is computed.
    if qrels is None:
        dataset.state = Dataset.State.COLLECTING
    elif dataset.runs_only:
        dataset.state = Dataset.State.PUBLISHED
    dataset.save()
    if storing.offer_content(version, files, options.split, with_scored=not keeps_qrels):
        changes.append("files")
    is_bm25_requested = _request_bm25(dataset, qrels, changes, is_moved=is_moved)
    if is_bm25_requested and not (is_moved or "language" in changes):
        changes.append("BM25 requested again")
    is_named, run_requested = _use_run(dataset, run, qrels, is_judged=judgements is not None)
    if run_requested:
        changes.append("baseline run")
    old_tags = dataset.tags_sha256
    if files.tags is not None and set_tags(dataset, files.tags) and dataset.tags_sha256 != old_tags:
        changes.append("tags")
    if changes:
        board_changed(dataset, Kind.IMPORTED)
    if is_named:
        changes.append("baseline run")
    remarks = missing_documents(judgements.statistics(dataset.relevance_level)) if judgements is not None else []
    if not dataset.runs_only and (remark := analyser_for(dataset.language).remark):
        remarks.append(remark)
    return ImportResult(
        dataset,
        version,
        qrels,
        tuple(changes),
        is_bm25_requested or run_requested,
        offered=tuple(file.name for file in offered_files(dataset, AnonymousUser())),
        left_out=withheld_splits(collection, options),
        remarks=tuple(remarks),
    )


def _choose_qrels(
    dataset: Dataset,
    version: DatasetVersion,
    collection: InspectedCollection,
    options: ImportOptions,
    changes: list[str],
) -> tuple[Qrels | None, bool]:
    """Return the qrels of the board, and whether it keeps the current ones until a rescore is decided.

    If the judgments have changed, a rescore is started and added to `changes`. An import without judgments keeps the
    current ones. Raises InvalidContent while a rescore on other judgments is pending.
    """
    current_qrels = dataset.current_qrels if dataset.current_version_id == version.pk else None
    judgements = collection.judgements.get(options.split)
    if judgements is None:
        return current_qrels, False
    inputs = {"answers_sha256": collection.answers, "subtopics_sha256": collection.subtopics}
    files = {name: file.sha256 for name, file in inputs.items() if file}
    judged_by = {"stated": options.judged_by} if options.judged_by else None
    new_qrels = current_or_next_qrels(version, options.split, judgements, files=files, judged_by=judged_by)
    old_labels = dataset.current_qrels.judged_by.get("labels") if dataset.current_qrels else None
    if old_labels and not new_qrels.labels_sha256:
        judges = ", ".join(judge["name"] for judge in old_labels["judges"])
        changes.append(f"labels of answers by {judges} (dropped, because the queries differ; import them again)")
    if dataset.current_version_id != version.pk or not must_rescore(dataset, new_qrels):
        return new_qrels, False
    pending_rescore = get_pending_rescore(dataset)
    if pending_rescore is None:
        start_rescore(dataset, new_qrels, "The collection was imported with other judgments.")
        changes.append(f"rescore on {new_qrels.split} qrels v{new_qrels.number}")
    elif pending_rescore.to_qrels_id != new_qrels.pk:
        message = (
            f"{dataset.name} is being rescored on qrels v{pending_rescore.to_qrels.number}, which are other judgments"
        )
        hint = "Switch its board to them or discard that rescore, then import again."
        raise InvalidContent.build(problem("rescore_under_way", message, hint))
    return current_qrels, True


def _use_run(dataset: Dataset, run: BaselineRun | None, qrels: Qrels | None, *, is_judged: bool) -> tuple[bool, bool]:
    """Make a run the baseline, or request its scoring as the baseline.

    Returns whether its existing result on the board was made the baseline, and whether scoring was requested. Both are
    False without a run, or if the run already is the baseline or its scoring was already requested. Raises
    InvalidContent without judgments, or if the acting user is not permitted to learn the run's score.
    """
    if run is None:
        return False, False
    if qrels is None:
        message = "a baseline run needs judgments, and there are none yet"
        raise InvalidContent.build(problem("baseline", message, "Add the run when you import the judgments."))
    # The score would reveal which topics the stored judgments judge.
    is_guess = not is_judged and dataset.hidden and not dataset.runs_only
    if is_guess and not may_see_counts(dataset, actor().person):
        raise InvalidContent.build(NOT_COMPARED)
    if name_run_on_board(dataset, run):
        return True, False
    if not request_baseline_run(dataset, run):
        return False, False
    record_compared(f"a baseline run for {dataset}", dataset, qrels)  # because quotas do not limit it
    return False, True


def _request_bm25(dataset: Dataset, qrels: Qrels | None, changes: Sequence[str], *, is_moved: bool) -> bool:
    """Request the dataset's BM25 if it has no baseline and none is requested; return whether it was requested now.

    This also tries again if an earlier attempt failed, and replaces BM25 if the dataset's language changed. BM25 is
    retrieved even without judgments, because a pool may use it.
    """
    pending_requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.BASELINE, dataset=dataset, taken_at=None)
    is_unfinished = dataset.state == Dataset.State.PREPARING and not pending_requests.exists()
    has_other_language = "language" in changes
    if dataset.runs_only or not (is_moved or is_unfinished or has_other_language):
        return False
    baselines = Entry.objects.filter(dataset=dataset, is_baseline=True, evaluation__qrels=qrels)
    if qrels is not None and baselines.exists() and not has_other_language:
        return False
    request_baseline(dataset)
    return True


def _agreement_problems(dataset: Dataset, options: ImportOptions) -> Iterator[Problem]:
    """Yield problems for options that would publish data protected by the dataset's agreement."""
    hint = "Correct the option, or disable the agreement."
    for name, message in conflicting_visibility_settings(dataset, options.columns()).items():
        yield problem(f"option_{name}", f"{name}: {message}", hint)


def _update_settings(options: ImportOptions) -> tuple[Dataset, list[str]]:
    """Create or lock the dataset's row, set and save its settings, and return it with the names of the changes.

    Published scores are refreshed if the measures or the protection changed. Raises InvalidContent if an agreement that
    conflicts with the options came into force in the meantime.
    """
    lock_boards(Dataset.objects.filter(slug=options.slug).values_list("pk", flat=True))
    dataset = Dataset.objects.filter(slug=options.slug).first()
    if dataset is not None and (problems := list(_agreement_problems(dataset, options))):
        raise InvalidContent.build(*problems)
    values: dict[str, Any] = options.columns()
    if options.twin_of:
        values["twin_of_id"] = Dataset.objects.values_list("pk", flat=True).get(slug=options.twin_of)
    is_first = dataset is None or dataset.current_version_id is None
    if dataset is None:
        dataset = Dataset(slug=options.slug, name=options.slug, state=Dataset.State.PREPARING)
    is_new = dataset.pk is None
    if is_first or options.primary or options.measures or values["hidden"] != dataset.hidden:
        # A reported dataset has the measure of its paper, which no curator of this site has chosen.
        measures = shown_measures(options.primary or dataset.primary_measure, options.measures, hidden=values["hidden"])
        values |= {"primary_measure": measures[0], "measures": measures}
    changed_names = sorted(name for name, value in values.items() if getattr(dataset, name) != value)
    old_values = {name: getattr(dataset, name) for name in changed_names}
    for name in changed_names:
        setattr(dataset, name, values[name])
    dataset.save()
    if changed_names and not is_new:
        new_values = {name: values[name] for name in changed_names}
        record("settings", dataset, dataset=dataset, before=old_values, after=new_values)
    if {"hidden", "measures"} & set(changed_names):
        refresh_scores(dataset)
    return dataset, ["dataset"] if is_new else changed_names


def read_baseline_run(path: Path, collection: InspectedCollection) -> BaselineRun:
    """Check the run against the collection and store it. Raises InvalidContent with the run's problems."""
    documents = DocumentIds.open(collection.id_table) if collection.id_table else None
    try:
        report = check_run(path, ScoringTarget(query_ids=collection.topics.ids, document_ids=documents))
    except InvalidContent as error:
        raise InvalidContent.build(*in_file(path.name, error.report.problems)) from error
    if not report.valid:
        raise InvalidRun.build(*in_file(path.name, report.errors))
    tags = report.statistics.tags
    return BaselineRun(run_name(path, tags), store_run(path), report.statistics.lines, tags[0] if tags else "")


def name_run_on_board(dataset: Dataset, run: BaselineRun) -> bool:
    """Make an existing result of the same run the baseline; return False if there is none or it already is.

    A second result of the same run would be compared with itself, and would add another test.
    """
    results = Entry.objects.public().filter(
        dataset=dataset, evaluation__qrels=dataset.current_qrels, evaluation__run__sha256=run.stored.sha256
    )
    # A team's own result takes precedence over the site's, which exists only as the baseline.
    rows = results.select_related("dataset", "system").order_by("published_at", "pk")
    result = min(rows, key=lambda entry: entry.system.team_id is None, default=None)
    if result is None or result.is_baseline:
        return False
    name_baseline(result)
    return True


def request_baseline_run(dataset: Dataset, run: BaselineRun) -> bool:
    """Request scoring of the run as the baseline; return False if it is the baseline or already requested."""
    baselines = Entry.objects.filter(dataset=dataset, is_baseline=True, evaluation__qrels=dataset.current_qrels)
    if baselines.filter(evaluation__run__sha256=run.stored.sha256).exists():
        return False
    system = house_system(
        slug=slugify(f"{run.name}-{dataset.slug}".replace(".", "-"))[:120],
        name=f"{run.name[: max(1, 117 - len(dataset.name))]} ({dataset.name})"[:120],
        architecture=Architecture.OTHER,
        description=f"The run that a curator selected as the baseline of {dataset.name}.",
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
    pending_requests = WorkRequest.objects.filter(kind=WorkRequest.Kind.SCORE, dataset=dataset, taken_at=None)
    if any(request.payload == payload for request in pending_requests):
        return False
    request_work(WorkRequest.Kind.SCORE, dataset, payload)
    return True
