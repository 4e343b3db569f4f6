"""Base classes and shared arguments of curation commands."""

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
from leaderboard.admin.forms import TextFileField
from leaderboard.admin.pages import ActionRefused, Operation
from leaderboard.core.audit import acting, actor
from leaderboard.judgements.rescoring.campaigns import get_pending_rescore
from leaderboard.models import Challenge, Dataset, Entry, Rescore, System, Team, TopicSource, User

Row = TypeVar("Row", bound=models.Model)
Form = TypeVar("Form", bound=forms.Form)


class CurationCommand(BaseCommand):
    """Base class of curation commands. Subclasses declare their arguments and implement `curate`."""

    #: Names in `SUBJECTS` of the rows to act on: positional arguments, and keyword arguments of `curate`.
    subjects: tuple[str, ...] = ()
    #: Permission that the acting user needs, such as `leaderboard.reveal_dataset`.
    right = ""
    #: Whether `curate` runs in one transaction.
    atomic = True
    #: Exceptions of `curate` that are reported as errors of the command.
    refusals: tuple[type[Exception], ...] = (ValueError,)
    #: Help text of `--why`, which says who can read the reason.
    why_help = "reason, for the audit log; public if the action notifies readers"

    def add_arguments(self, parser: CommandParser) -> None:
        for name in self.subjects:
            parser.add_argument(name, **SUBJECTS[name][0])
        self.add_more(parser)
        add_actor_arguments(parser, self.why_help)

    def add_more(self, parser: CommandParser) -> None:
        """Add the arguments of the subclass."""

    def curate(self, *args: Any, **options: Any) -> str:
        """Carry out the action and return a message about it."""
        raise NotImplementedError

    def handle(self, *args: Any, **options: Any) -> None:
        """Run `curate` in the name of the acting user, and print its message.

        Raises CommandError for one of `refusals`, without the permission `right`, or if a row does not exist.
        """
        try:
            with transaction.atomic() if self.atomic else nullcontext(), acting_person(options):
                if self.right:
                    require_right(self.right)
                rows = {name: SUBJECTS[name][1](options[name]) for name in self.subjects}
                message = self.curate(**{**options, **rows})
        except InvalidContent as error:
            raise CommandError(describe_refusal(error, "file")) from error
        except OSError as error:
            if error.filename is None:  # such as a broker that does not answer
                raise
            raise CommandError(describe_unreadable(error)) from error
        except self.refusals as error:
            raise CommandError(str(error)) from error
        self.stdout.write(message)


class OperationCommand(CurationCommand):
    """The command of an admin operation."""

    def __init__(self, operation: Operation, subject: str) -> None:
        super().__init__()
        self.operation, self.subjects, self.help = operation, (subject,), operation.help
        self.right = operation.permission if operation.guards_command else ""
        self.refusals = (ValueError, ActionRefused, *operation.refusals)

    def add_more(self, parser: CommandParser) -> None:
        add_form_arguments(parser, self.operation.form, self.operation.arguments)

    def curate(self, **options: Any) -> str:
        """Run the operation on the row with the values of the command's options, and return its report."""
        row = options[self.subjects[0]]
        form = read_form(self.operation.form, self.operation.arguments, options)
        values = {**form.cleaned_data, "why": options["why"]}
        sentence = self.operation.run(row, values)
        if self.operation.report is None:
            return sentence
        current_row = type(row)._default_manager.filter(pk=row.pk).first()
        return self.operation.report(current_row or row, values)


#: Form fields with values that argparse converts.
_TYPES: dict[type[forms.Field], type] = {
    forms.IntegerField: int,
    forms.FloatField: float,
    forms.FileField: Path,
    TextFileField: Path,
}


def add_form_arguments(
    parser: ArgumentParser, form: type[forms.Form], names: Mapping[str, str], skipped: Sequence[str] = ()
) -> None:
    """Add an argument for each visible field of a form, except the reason.

    Args:
        parser: Parser of the command.
        form: Class of the form.
        names: Argument names by field, as in `Operation.arguments`.
        skipped: Fields without an argument.
    """
    for name, field in form.base_fields.items():
        if name in ("why", *skipped) or field.widget.is_hidden:
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
            is_required = field.required and field.initial is None and "action" not in options
            parser.add_argument(argument, dest=name, required=is_required, **options)
        else:
            parser.add_argument(name, metavar=argument, **options)


def read_form(
    form: type[Form], names: Mapping[str, str], options: Mapping[str, Any], skipped: Sequence[str] = ()
) -> Form:
    """Return the valid form for a command's options, with files as paths. Raises CommandError with all errors."""
    data: dict[str, Any] = {}
    paths: dict[str, Path | None] = {}
    for name, field in form.base_fields.items():
        value = options.get(name)
        if names.get(name) == "":
            value = next((choice for choice, _ in field.choices if options.get(choice)), None)  # type: ignore[attr-defined]
        if isinstance(field, forms.FileField):
            paths[name] = value
        elif isinstance(field, forms.ModelChoiceField) and isinstance(value, str):
            data[name] = find_by_slug(field.queryset.model, value)  # type: ignore[union-attr]
        else:
            data[name] = field.initial if value is None else value
    bound_form = form(data)
    for name in ("why", *paths, *skipped):
        bound_form.fields.pop(name, None)
    if bound_form.is_valid():
        bound_form.cleaned_data |= paths
        return bound_form
    raise CommandError(describe_errors(bound_form, names))


def describe_errors(form: forms.BaseForm, names: Mapping[str, str]) -> str:
    """Return a line for each error of a form, with the argument names by field as in `Operation.arguments`."""
    return "\n".join(
        f"{names.get(name) or '--' + name.replace('_', '-')}: {text}"
        for name, texts in form.errors.items()
        for text in texts
    )


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file without its byte order mark. Raises CommandError if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise CommandError(describe_unreadable(error)) from error
    except UnicodeDecodeError as error:
        raise CommandError(f"{path} cannot be read as UTF-8 text: {error}.") from error


def describe_unreadable(error: OSError) -> str:
    """Return a message about a file that cannot be read, and what to do."""
    if isinstance(error, FileNotFoundError):
        return f"There is no file {error.filename}. Check the path."
    return f"{error.filename} cannot be read: {error.strerror}. Check its path and permissions."


def add_actor_arguments(parser: ArgumentParser, why_help: str) -> None:
    """Add the required arguments `--by` and `--why`."""
    parser.add_argument("--by", required=True, metavar="EMAIL", help="account in whose name to act")
    parser.add_argument("--why", required=True, help=why_help)


def add_import_arguments(parser: ArgumentParser, by_help: str = "account in whose name to import") -> None:
    """Add the optional arguments `--by` and `--why`."""
    parser.add_argument("--by", metavar="EMAIL", help=by_help)
    parser.add_argument("--why", default="imported on the command line", help="reason, for the audit log")


def importing_person(options: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Return a context that acts as the account `--by`, or as the site, with the reason `--why`.

    Raises CommandError if there is no such account.
    """
    return acting(find_person(options["by"]) if options["by"] else None, options["why"].strip())


@contextmanager
def acting_person(options: Mapping[str, Any]) -> Iterator[None]:
    """Act as `--by` with the reason `--why`. Raises CommandError if the account is unknown or the reason empty."""
    person = find_person(options["by"])
    if not (reason := options["why"].strip()):
        raise CommandError("Give a reason with --why; it is stored in the audit log.")
    with acting(person, reason):
        yield


def find_person(email: str) -> User:
    """Return the account with an email address, in any case. Raises CommandError if there is none."""
    rows = User.objects.filter(email__iexact=email.strip())
    return _first_row(rows, f"There is no account with the email address {email}.")


def read_moment(text: str) -> datetime:
    """Return a time in UTC; text without an offset is in UTC. Raises CommandError if it is not a time."""
    try:
        moment = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        raise CommandError(f"“{text}” is not a valid time. Write it as 2026-12-05T12:00, in UTC.") from None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def require_right(permission: str) -> None:
    """Raise CommandError unless the acting user has a permission, such as `leaderboard.reveal_dataset`."""
    person = actor().person
    if person is None or not person.has_perm(permission):
        raise CommandError(f"{actor().name} needs the permission {permission}. Superusers can grant it in the admin.")


def _first_row(rows: models.QuerySet[Row], message: str) -> Row:
    """Return the first of the rows. Raises CommandError with the message `message` if there are none."""
    row = rows.first()
    if row is None:
        raise CommandError(message)
    return row


def find_by_slug(model: type[Row], slug: str) -> Row:
    """Return the row of the model with a slug; teams also by earlier slugs. Raises CommandError if there is none."""
    condition = Team.has_address(slug) if model is Team else models.Q(slug=slug)
    message = f"There is no {model._meta.verbose_name} with the slug {slug}."
    return _first_row(model._default_manager.filter(condition), message)


def find_dataset(slug: str) -> Dataset:
    return find_by_slug(Dataset, slug)


def find_challenge(key: int) -> Challenge:
    return _first_row(Challenge.objects.select_related("system").filter(pk=key), f"There is no challenge {key}.")


def find_rescore(slug: str) -> Rescore:
    """Return a dataset's rescore that is running or has failed. Raises CommandError."""
    dataset = find_dataset(slug)
    rescore = get_pending_rescore(dataset) or dataset.rescores.filter(state=Rescore.State.FAILED).first()
    if rescore is None:
        raise CommandError(f"{dataset} is not being rescored. Start with manage.py rescore {slug}.")
    return rescore


def find_entry(reference: str) -> Entry:
    """Return the entry with a number, or of `DATASET/SYSTEM` by their slugs. Raises CommandError.

    If the system has several results on the dataset, the error lists them with their numbers.
    """
    entries = Entry.objects.select_related("dataset", "system")
    if reference.isdigit():
        return _first_row(entries.filter(pk=int(reference)), f"There is no entry {reference}.")
    dataset, slash, system = reference.partition("/")
    if not slash:
        raise CommandError(f"“{reference}” is not an entry. Give its number, or DATASET/SYSTEM by their slugs.")
    matches = list(entries.filter(dataset__slug=dataset, system__slug=system).order_by("pk"))
    if not matches:
        raise CommandError(f"{system} has no result on {dataset}.")
    if len(matches) > 1:
        lines = [
            f"{entry.pk}: {entry.get_visibility_display()} {entry.configuration} {entry.published_at:%Y-%m-%d}"
            for entry in matches
        ]
        raise CommandError("\n".join([f"{reference} has several results. Give the number of one:", *lines]))
    return matches[0]


#: Rows that commands act on: the positional argument and the function that finds the row.
SUBJECTS: dict[str, tuple[dict[str, Any], Callable[[Any], models.Model]]] = {
    "dataset": ({"help": "slug of the dataset"}, find_dataset),
    "entry": ({"help": "number of the entry, or DATASET/SYSTEM by their slugs"}, find_entry),
    "challenge": (
        {"type": int, "help": "number of the challenge in the admin, or its key in the API"},
        find_challenge,
    ),
    "rescore": ({"metavar": "dataset", "help": "slug of the dataset"}, find_rescore),
    "account": ({"metavar": "email", "help": "email address of the account"}, find_person),
    "rolling_benchmark": ({"help": "slug of the rolling benchmark"}, partial(find_by_slug, TopicSource)),
    "duplicate": ({"help": "slug of the system to merge"}, partial(find_by_slug, System)),
}


def list_problems(title: str, problems: Iterable[Problem], *, hints: bool = True) -> str:
    """Return a title followed by a list of problems with their line numbers."""
    lines = [title]
    for problem in problems:
        lines.append(f"- {problem.message}{at_lines(problem.lines)}")
        if hints:
            lines.append(f"  {problem.hint}")
    return "\n".join(lines)


def change_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return a line for each row with `name` and `changes`: the old and new values of its fields."""
    return [
        f"{row['name']}: "
        + "; ".join(
            f"{item['field']}: {' → '.join(filter(None, (item['old'], item['new'])))}" for item in row["changes"]
        )
        for row in rows
    ]


def describe_refusal(error: InvalidContent, subject: str = "import") -> str:
    """Return a description of all problems of a rejected import or file."""
    problems = error.report.problems
    plural = "" if len(problems) == 1 else "s"
    return list_problems(f"The {subject} was rejected: {len(problems)} problem{plural}.", problems)


class ProgressLine:
    """Progress output: one line that is overwritten on a terminal, else one line per stage."""

    def __init__(self, stream: Any) -> None:
        self.out = stream
        self.live = sys.stdout.isatty()
        self.stage = ""

    def show(self, stage: str, share: float) -> None:
        """Show the stage and, on a terminal, the completed share (0 to 1)."""
        if self.live:
            self.out.write(f"\r\x1b[K{stage} {share:4.0%}", ending="")
        elif stage != self.stage:
            self.out.write(f"{stage} …")
        self.stage = stage

    def finish(self) -> None:
        if self.live:
            self.out.write("\r\x1b[K", ending="")
