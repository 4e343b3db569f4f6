"""Commands of curation: who acts, why, on what, and the arguments that come from a form."""

import sys
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from django import forms
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import models, transaction

from evaluation.core.problems import InvalidContent, Problem, at_lines
from leaderboard.admin.pages import ActionRefused, Operation
from leaderboard.core.audit import acting, actor
from leaderboard.judgements.rescoring.campaigns import under_way
from leaderboard.models import Challenge, Dataset, Entry, Rescore, System, Team, User

Row = TypeVar("Row", bound=models.Model)
Form = TypeVar("Form", bound=forms.Form)


class CurationCommand(BaseCommand):
    """A command of curation. Subclasses declare their arguments, and act in `curate`."""

    #: Names in `SUBJECTS` of the rows that it acts on: arguments, in this order, and keyword arguments of `curate`.
    subjects: tuple[str, ...] = ()
    #: The permission that the acting person needs, such as `leaderboard.reveal_dataset`.
    right = ""
    #: Whether `curate` is one transaction.
    atomic = True
    #: Exceptions of `curate` that are shown as the command's error.
    refusals: tuple[type[Exception], ...] = (ValueError,)
    #: Says who reads the reason.
    why_help = "kept in the record, and public where readers are told"

    def add_arguments(self, parser: CommandParser) -> None:
        for name in self.subjects:
            parser.add_argument(name, **SUBJECTS[name][0])
        self.add_more(parser)
        add_actor_arguments(parser, self.why_help)

    def add_more(self, parser: CommandParser) -> None:
        """Add the arguments of the command beside its rows."""

    def curate(self, *args: Any, **options: Any) -> str:
        """Act, and return a sentence about it."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            with transaction.atomic() if self.atomic else nullcontext(), acting_person(options):
                if self.right:
                    require_right(self.right)
                rows = {name: SUBJECTS[name][1](options[name]) for name in self.subjects}
                message = self.curate(**{**options, **rows})
        except InvalidContent as error:
            raise CommandError(describe_refusal(error)) from error
        except self.refusals as error:
            raise CommandError(str(error)) from error
        self.stdout.write(message)


class OperationCommand(CurationCommand):
    """The command of an operation of the admin."""

    def __init__(self, operation: Operation, subject: str) -> None:
        super().__init__()
        self.operation, self.subjects, self.help = operation, (subject,), operation.help
        self.right = operation.permission if operation.guards_command else ""
        self.refusals = (ValueError, ActionRefused, *operation.refusals)

    def add_more(self, parser: CommandParser) -> None:
        add_form_arguments(parser, self.operation.form, self.operation.arguments)

    def curate(self, **options: Any) -> str:
        row = options[self.subjects[0]]
        form = read_form(self.operation.form, self.operation.arguments, options)
        values = {**form.cleaned_data, "why": options["why"]}
        sentence = self.operation.run(row, values)
        if self.operation.report is None:
            return sentence
        changed = type(row)._default_manager.filter(pk=row.pk).first()
        return self.operation.report(changed or row, values)


#: Types that argparse converts itself.
_TYPES: dict[type[forms.Field], type] = {
    forms.IntegerField: int,
    forms.FloatField: float,
    forms.FileField: Path,
}


def add_form_arguments(
    parser: ArgumentParser, form: type[forms.Form], names: Mapping[str, str], without: Sequence[str] = ()
) -> None:
    """Add an argument for each visible field of a form but the reason. `names` are those of `Operation.arguments`."""
    for name, field in form.base_fields.items():
        if name in ("why", *without) or field.widget.is_hidden:
            continue
        argument = names.get(name, f"--{name.replace('_', '-')}")
        options: dict[str, Any] = {"help": str(field.help_text or field.label or "").replace("%", "%%")}
        has_choices = isinstance(field, forms.ChoiceField) and not isinstance(field, forms.ModelChoiceField)
        choices = [value for value, _ in field.choices if value] if has_choices else []  # type: ignore[attr-defined]
        if not argument:
            flags = parser.add_mutually_exclusive_group(required=field.required)
            for value in choices:
                flags.add_argument(f"--{value}", action="store_true")
            continue
        if isinstance(field, forms.BooleanField):
            options["action"] = "store_true"
        else:
            options |= {"type": _TYPES.get(type(field), str), "choices": choices or None}
        if argument.startswith("-"):
            needed = field.required and field.initial is None and "action" not in options
            parser.add_argument(argument, dest=name, required=needed, **options)
        else:
            parser.add_argument(name, metavar=argument, **options)


def read_form(
    form: type[Form], names: Mapping[str, str], options: Mapping[str, Any], without: Sequence[str] = ()
) -> Form:
    """Return the valid form of a command's options; its files are paths. Raises CommandError with all errors."""
    data: dict[str, Any] = {}
    paths: dict[str, Path | None] = {}
    for name, field in form.base_fields.items():
        value = options.get(name)
        if names.get(name) == "":
            value = next((each for each, _ in field.choices if options.get(each)), None)  # type: ignore[attr-defined]
        if isinstance(field, forms.FileField):
            paths[name] = value
        elif isinstance(field, forms.ModelChoiceField) and isinstance(value, str):
            data[name] = find_by_slug(field.queryset.model, value)  # type: ignore[union-attr]
        else:
            data[name] = field.initial if value is None else value
    bound = form(data)
    for name in ("why", *paths, *without):
        bound.fields.pop(name, None)
    if bound.is_valid():
        bound.cleaned_data |= paths
        return bound
    raise CommandError(
        "\n".join(
            f"{names.get(name) or '--' + name.replace('_', '-')}: {text}"
            for name, texts in bound.errors.items()
            for text in texts
        )
    )


def add_actor_arguments(parser: ArgumentParser, why_help: str) -> None:
    """Add the arguments for who acts, and why."""
    parser.add_argument("--by", required=True, metavar="EMAIL", help="whose act it is: an account here")
    parser.add_argument("--why", required=True, help=why_help)


def add_import_arguments(parser: ArgumentParser, by_help: str = "whose act it is: an account here") -> None:
    """Add the arguments for who imports, and why, which may be left out."""
    parser.add_argument("--by", metavar="EMAIL", help=by_help)
    parser.add_argument("--why", default="imported on the command line", help="kept in the record")


def importing_person(options: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Act as `--by`, if that is given, for the reason `--why`. Raises CommandError if there is no such person."""
    return acting(find_person(options["by"]) if options["by"] else None, options["why"].strip())


@contextmanager
def acting_person(options: Mapping[str, Any]) -> Iterator[None]:
    """Act as `--by` for the reason `--why`. Raises CommandError if there is no such person, or no reason."""
    person = find_person(options["by"])
    if not (why := options["why"].strip()):
        raise CommandError("Say why: --why is kept in the record.")
    with acting(person, why):
        yield


def find_person(email: str) -> User:
    """Return the account with this address. Raises CommandError."""
    rows = User.objects.filter(email__iexact=email.strip())
    return _first(rows, f"There is no account with the address {email}.")


def read_moment(text: str) -> datetime:
    """Return a time in UTC. Raises CommandError."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise CommandError(f"“{text}” is no time: write it as 2026-12-05T12:00, in UTC.") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def require_right(right: str) -> None:
    """Raise CommandError if the acting person lacks a permission, such as `leaderboard.reveal_dataset`."""
    person = actor().person
    if person is None or not person.has_perm(right):
        raise CommandError(
            f"{actor().name} has not the permission {right}: a superuser gives it in the admin."
        )


def _first(rows: models.QuerySet[Row], missing: str) -> Row:
    """Return the first of the rows. Raises CommandError with a sentence if there is none."""
    row = rows.first()
    if row is None:
        raise CommandError(missing)
    return row


def find_by_slug(model: type[Row], slug: str) -> Row:
    """Return a dataset, a system, a team, a round or a benchmark. Raises CommandError."""
    named = Team.has_address(slug) if model is Team else models.Q(slug=slug)
    missing = f"There is no {model._meta.verbose_name} {slug}: give its slug."
    return _first(model._default_manager.filter(named), missing)


def find_dataset(slug: str) -> Dataset:
    """Return the dataset with this slug. Raises CommandError."""
    return find_by_slug(Dataset, slug)


def find_challenge(key: int) -> Challenge:
    """Return the challenge with this number. Raises CommandError."""
    return _first(Challenge.objects.select_related("system").filter(pk=key), f"There is no challenge {key}.")


def find_rescore(slug: str) -> Rescore:
    """Return a dataset's rescore that is under way or has failed. Raises CommandError."""
    dataset = find_dataset(slug)
    rescore = under_way(dataset) or dataset.rescores.filter(state=Rescore.State.FAILED).first()
    if rescore is None:
        raise CommandError(f"{dataset} is not being rescored: begin with manage.py rescore {slug}.")
    return rescore


def find_entry(reference: str) -> Entry:
    """Return the entry with this number, or that of `DATASET/SYSTEM` by their slugs. Raises CommandError.

    If a system has several results there, the error lists all with their numbers.
    """
    entries = Entry.objects.select_related("dataset", "system")
    if reference.isdigit():
        return _first(entries.filter(pk=int(reference)), f"There is no entry {reference}.")
    dataset, slash, system = reference.partition("/")
    if not slash:
        raise CommandError(
            f"“{reference}” names no entry: give its number, or DATASET/SYSTEM by their slugs."
        )
    matches = list(entries.filter(dataset__slug=dataset, system__slug=system).order_by("pk"))
    if not matches:
        raise CommandError(f"{system} has no result on {dataset}.")
    if len(matches) > 1:
        lines = [
            f"{each.pk}: {each.get_visibility_display()} {each.configuration} {each.published_at:%Y-%m-%d}"
            for each in matches
        ]
        raise CommandError("\n".join([f"{reference} has several results; give the number of one:", *lines]))
    return matches[0]


#: Rows that commands act on: the argument that names one, and the function that finds it.
SUBJECTS: dict[str, tuple[dict[str, Any], Callable[[Any], models.Model]]] = {
    "dataset": ({"help": "its slug"}, find_dataset),
    "entry": ({"help": "its number, or DATASET/SYSTEM by their slugs"}, find_entry),
    "challenge": ({"type": int, "help": "its number, as in the admin or the API (key)"}, find_challenge),
    "rescore": ({"metavar": "dataset", "help": "its slug"}, find_rescore),
    "account": ({"metavar": "email", "help": "an account that is there"}, find_person),
    "duplicate": ({"help": "the slug of the one that goes"}, partial(find_by_slug, System)),
}


def list_problems(title: str, problems: Iterable[Problem], *, hints: bool = True) -> str:
    """Return a title and a list of problems, with the lines where they are."""
    lines = [title]
    for each in problems:
        lines.append(f"- {each.message}{at_lines(each.lines)}")
        if hints:
            lines.append(f"  {each.hint}")
    return "\n".join(lines)


def describe_refusal(error: InvalidContent) -> str:
    """Return all problems of a refused import."""
    problems = error.report.problems
    plural = "" if len(problems) == 1 else "s"
    return list_problems(f"Nothing was imported: {len(problems)} problem{plural}.", problems)


class ProgressLine:
    """Progress in one line that is overwritten on a terminal; elsewhere one line for each stage."""

    def __init__(self, out: Any) -> None:
        self.out = out
        self.live = sys.stdout.isatty()
        self.stage = ""

    def show(self, stage: str, share: float) -> None:
        if self.live:
            self.out.write(f"\r\x1b[K{stage} {share:4.0%}", ending="")
        elif stage != self.stage:
            self.out.write(f"{stage} …")
        self.stage = stage

    def finish(self) -> None:
        if self.live:
            self.out.write("\r\x1b[K", ending="")
