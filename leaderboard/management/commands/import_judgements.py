"""`manage.py import_judgements DATASET FILE`: merge judgments into a dataset's next qrels."""

from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from evaluation.core.problems import format_count
from evaluation.judgements.labels import labeled_answers
from evaluation.judgements.merge import Judge, agreement_sentence
from leaderboard.admin.judging import JudgementUploadForm
from leaderboard.core.audit import actor
from leaderboard.datasets.qrels import record_reading
from leaderboard.judgements import imports
from leaderboard.judgements.comparing import compare_now, merge_now, preview_judgements
from leaderboard.judgements.disclosure import is_secret, may_see_counts, record_comparison_read
from leaderboard.judgements.labels import check_labels
from leaderboard.judgements.pools import JudgingRefused
from leaderboard.management.curating import CurationCommand, add_form_arguments
from leaderboard.models import Dataset, JudgementImport, Pool

_SECRECY = "only users who may read hidden judgments learn what is new and where grades disagree."


class Command(CurationCommand):
    """Command that imports judgments immediately. It reads judgments, so it must run where the scorer runs."""

    help = (
        "Merge judgments (TREC qrels, BEIR's format, or a pool's CSV with grades) into the dataset's next qrels. The "
        "first judgments apply at once; if there are results, a rescore starts and the board stays the same."
    )

    subjects = ("dataset",)
    atomic = False
    refusals = (JudgingRefused,)
    why_help = "reason, for the audit log"

    def add_more(self, parser: CommandParser) -> None:
        parser.add_argument("file", type=Path, help="file of judgments: plain, .gz, .zst or .bz2")
        parser.add_argument(
            "--conflicts", choices=imports.Conflicts.values,
            help="if a pair has a different grade: keep the old one, replace it, or use the highest",
        )  # fmt: skip
        parser.add_argument("--judge", default="", help="assessors or model that judged (public)")
        parser.add_argument("--labels", action="store_true", help="import labels of answers; the file names the judges")
        add_form_arguments(
            parser, JudgementUploadForm, {}, skipped=("dataset", "file", "judge_kind", "judge_name", "pool")
        )
        parser.add_argument("--pool", type=int, help="number of the judged pool")
        parser.add_argument("--dry-run", action="store_true", help="show the changes without storing them")

    def curate(self, dataset: Dataset, file: Path, **options: Any) -> str:
        """Import judgments, compare them with the current ones, and merge them; a dry run only shows the changes.

        Return a message about the outcome. Raises CommandError if grades disagree and `--conflicts` is missing.
        """
        if not file.is_file():
            raise CommandError(f"The file {file} does not exist.")
        is_blind = dataset.current_qrels is not None and not may_see_counts(dataset, actor().person)
        checks = {name: options[name] for name in ("scale_grew", "strict")}
        if options["dry_run"] and options["labels"]:
            label_count = len(labeled_answers(check_labels(dataset, file)))
            return f"The file can be imported: {format_count(label_count, 'label')}."
        if options["dry_run"]:
            return _preview_import(dataset, file, is_blind, checks)
        if is_blind and not options["conflicts"]:
            raise CommandError(f"Give --conflicts keep, replace or highest: {_SECRECY}")
        kind = (
            imports.JudgeKind.MODEL if options["judge_version"] or options["judge_prompt"] else imports.JudgeKind.PEOPLE
        )
        version, prompt = options["judge_version"] or "", (options["judge_prompt"] or "").lower()
        judge = Judge(imports.JudgeKind.LABELS if options["labels"] else kind, options["judge"], version, prompt)
        pool = Pool.objects.filter(pk=options["pool"], dataset=dataset).first() if options["pool"] else None
        if options["pool"] and pool is None:
            raise CommandError(f"{dataset} has no pool {options['pool']}.")
        judgement_import = imports.import_judgements(
            dataset, file, judge, note=options["note"] or "", pool=pool, **checks
        )
        if missing_documents := judgement_import.counts.get("missing"):
            self.stdout.write(f"{format_count(missing_documents, 'line')} with a document that is not in the corpus.")
        compare_now(judgement_import)
        if is_blind:
            self.stdout.write(
                f"{format_count(judgement_import.counts['pairs'], 'judgment')}. {_SECRECY[0].upper()}{_SECRECY[1:]}"
            )
        elif self._is_known(judgement_import):
            return "No changes: all judgments exist already."
        elif judgement_import.counts["conflicts"] and not options["conflicts"]:
            imports.discard_import(judgement_import)
            raise CommandError("Grades disagree, so nothing was changed. Give --conflicts keep, replace or highest.")
        try:
            imports.request_merge(judgement_import, imports.Conflicts(options["conflicts"] or imports.Conflicts.KEEP))
        except JudgingRefused:
            imports.discard_import(judgement_import)
            raise
        return merge_now(judgement_import)

    def _is_known(self, judgement_import: JudgementImport) -> bool:
        """Print the comparison and return whether nothing is new, in which case the import is discarded."""
        if is_secret(judgement_import, judgement_import.against):
            record_comparison_read(judgement_import, 0)
        self.stdout.write(_summary(judgement_import.counts))
        is_unchanged = not judgement_import.counts["new"] and not judgement_import.counts["conflicts"]
        if is_unchanged and judgement_import.state != imports.State.DISCARDED:
            imports.discard_import(judgement_import)
        return is_unchanged


def _preview_import(dataset: Dataset, file: Path, is_blind: bool, checks: dict[str, bool]) -> str:
    """Return a summary of what an import of the file would change, as far as the acting user may know it."""
    if is_blind:
        result = imports.check_judgements(dataset, file, **checks)
        judgment_count_text = format_count(result.pairs, "judgment")
        return f"The file can be imported: {judgment_count_text}, {result.unjudged:,} not judged yet."
    if dataset.hidden and dataset.current_qrels is not None:
        record_reading(f"{file.name} for {dataset}", dataset.pk, what="comparison")
    return _summary(preview_judgements(dataset, file, **checks).counts())


def _summary(counts: dict[str, Any]) -> str:
    """Return a sentence with the numbers of new, equal, and conflicting judgments, and their agreement."""
    sentences = [
        "Answers without a label of {judge}: {answers:,}.".format_map(row) for row in counts.get("unlabeled", ())
    ]
    if "unknown_answers" in counts:
        sentences.append(f"Labels without a matching answer: {counts['unknown_answers']:,}.")
    if number := counts.get("changed_nuggets"):
        sentences.append(f"Queries with changed nuggets: {number:,}. Labels of the unused nuggets are dropped.")
    return (
        f"{counts['new']:,} new, {counts['same']:,} the same, {format_count(counts['conflicts'], 'conflict')} "
        f"({counts['raised']:,} higher, {counts['lowered']:,} lower); "
        f"{format_count(counts['queries'], 'query', 'queries')}, {counts['new_queries']:,} of them not judged before."
        + "".join(f" {sentence}" for sentence in [*map(agreement_sentence, counts.get("agreement", ())), *sentences])
    )
