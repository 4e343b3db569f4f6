"""Tables that curators take out and bring in: which columns, and what follows a change. No secret is among them.

Rows go through django-import-export; what changes is written down row by row, and boards follow by the domain's own
verbs. Call `import_data` within `leaderboard.core.audit.acting`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any, ClassVar

from django.core.exceptions import ValidationError
from import_export.fields import Field
from import_export.resources import ModelResource
from import_export.widgets import ForeignKeyWidget, JSONWidget

from leaderboard.core.audit import record
from leaderboard.models import (
    DECLARED_NUMBERS,
    Benchmark,
    BenchmarkMember,
    Dataset,
    HardwareClass,
    Price,
    Source,
    System,
)
from leaderboard.results.board_rows.revisions import Kind, benchmark_changed, boards_changed
from leaderboard.results.efficiency import price_changed
from leaderboard.results.publishing.descriptions import system_changed
from leaderboard.systems.baselines import request_baseline_again


class ListWidget(JSONWidget):
    """A JSON list; an empty cell is an empty one."""

    def clean(self, value: Any, row: Any = None, **options: Any) -> list[Any]:
        """The list. Raises ValueError for anything else."""
        items = super().clean(value) or []
        if not isinstance(items, list):
            raise ValueError('This has to be a JSON list: ["msmarco", "nq"].')
        return items

    def render(self, value: Any, obj: Any = None, **options: Any) -> str:
        """The list as JSON, an empty one too."""
        return json.dumps(value or [])


class CurationResource(ModelResource):
    """Rows found by a key; unchanged ones are left alone, changed ones recorded with both values."""

    class Meta:
        clean_model_instances = True
        import_id_fields = ("slug",)

    #: Whether rows may be new: most tables are filled by the site itself.
    takes_new: ClassVar[bool] = False
    _meta: Any

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        #: What the row at hand changes: column → (before, after).
        self.changed: dict[str, tuple[Any, Any]] = {}

    def get_or_init_instance(self, instance_loader: Any, row: Any) -> tuple[Any, bool]:
        """The row's object. Raises ValidationError for one that is not there and may not be new."""
        instance, new = super().get_or_init_instance(instance_loader, row)
        if new and not self.takes_new:
            named = ", ".join(f"{name} {row.get(name)}" for name in self._meta.import_id_fields)
            kind = self._meta.model._meta.verbose_name
            raise ValidationError(
                f"There is no {kind} with {named}. Only those that are here can be changed."
            )
        return instance, new

    def skip_row(self, instance: Any, original: Any, row: Any, import_validation_errors: Any = None) -> bool:
        """Leave out what stays as it is; note what does not."""
        columns = [field for field in self.get_import_fields() if field.attribute]
        pairs = {
            field.column_name: (_plain(field.get_value(original)), _plain(field.get_value(instance)))
            for field in columns
        }
        self.changed = {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}
        if original.pk is None:
            self.changed = {name: (None, pair[1]) for name, pair in pairs.items()}
        return not self.changed and not import_validation_errors

    def after_import_row(self, row: Any, row_result: Any, **kwargs: Any) -> None:
        """Keep with the result of the row what it changes."""
        row_result.changed = self.changed

    def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
        """Write down the change, and let boards follow; not in a trial, which is taken back."""
        if kwargs.get("dry_run"):
            return
        record(
            "imported table", f"{self._meta.model._meta.verbose_name} {instance}",
            dataset=instance if isinstance(instance, Dataset) else None,
            before={name: pair[0] for name, pair in self.changed.items()},
            after={name: pair[1] for name, pair in self.changed.items()},
        )  # fmt: skip
        self.follow(instance)

    def follow(self, instance: Any) -> None:
        """What the change of a row asks for."""


def _plain(value: Any) -> Any:
    return value if isinstance(value, (str, int, float, bool, list, dict, type(None))) else str(value)


class DatasetResource(CurationResource):
    """What is said of datasets."""

    class Meta:
        model = Dataset
        fields = (
            "slug", "name", "task", "domain", "language", "licence", "homepage", "citation", "description",
            "ir_datasets_id", "beir_name", "daily_quota", "monthly_quota",
        )  # fmt: skip

    def follow(self, instance: Dataset) -> None:
        """Record a change of the board, which names the dataset, and request BM25 again if the language changed."""
        boards_changed([instance.pk], Kind.DESCRIPTION)
        if "language" in self.changed:
            request_baseline_again(instance)


class SystemResource(CurationResource):
    """What systems say of themselves."""

    training_datasets = Field("training_datasets", "training_datasets", ListWidget())
    adapted_to = Field("adapted_to", "adapted_to", ListWidget())

    class Meta:
        model = System
        fields = (
            "slug", "name", "architecture", "description", "backbone",
            *sorted(each.name for each in DECLARED_NUMBERS),
            "training_declared", "training_datasets", "adapted_to", "training_compute",
            "paper_url", "code_url", "model_url", "licence", "open_weights", "commercial_use", "closed_api",
            "participant", "authors", "year", "bibtex",
        )  # fmt: skip

    def follow(self, instance: System) -> None:
        """Its entries and boards follow."""
        system_changed(instance)


class HardwareResource(CurationResource):
    """How machines are called."""

    class Meta:
        model = HardwareClass
        fields = ("slug", "name")

    def follow(self, instance: HardwareClass) -> None:
        """Boards name the machine."""
        price_changed(instance)


class PriceResource(CurationResource):
    """What an hour of a machine costs, from a day on; new rows are taken."""

    takes_new = True
    hardware = Field("hardware", "hardware", ForeignKeyWidget(HardwareClass, "slug"))

    class Meta:
        model = Price
        import_id_fields = ("hardware", "valid_from")
        fields = ("hardware", "valid_from", "per_hour", "currency", "note")

    def follow(self, instance: Price) -> None:
        """Costs on boards follow."""
        price_changed(instance.hardware)


class BenchmarkResource(CurationResource):
    """Benchmarks with their members in order; new rows are taken."""

    takes_new = True
    source = Field("source", "source", ForeignKeyWidget(Source, "key"))
    efficiency_from = Field("efficiency_from", "efficiency_from", ForeignKeyWidget(Dataset, "slug"))
    members = Field(None, "members")

    class Meta:
        model = Benchmark
        fields = (
            "slug", "name", "description", "citation", "measure", "source", "efficiency_from", "position", "members",
        )  # fmt: skip

    def dehydrate_members(self, benchmark: Benchmark) -> str:
        """The datasets in order, as JSON."""
        return _JSON.render(_members(benchmark))

    def skip_row(self, instance: Any, original: Any, row: Any, import_validation_errors: Any = None) -> bool:
        """Members count as a column. Raises ValidationError for such as are no list of known datasets."""
        same = super().skip_row(instance, original, row, import_validation_errors)
        if "members" not in row:
            return same
        before = _members(original) if original.pk else []
        after = _read_members(row["members"])
        if before != after:
            self.changed["members"] = (before, after)
        return same and before == after

    def after_save_instance(self, instance: Any, row: Any, **kwargs: Any) -> None:
        """The members, before the boards follow."""
        self.touched = set(instance.members.values_list("dataset_id", flat=True))
        if "members" in self.changed:
            _set_members(instance, self.changed["members"][1])
        super().after_save_instance(instance, row, **kwargs)

    def follow(self, instance: Benchmark) -> None:
        """The boards of those that were members, and of those that are."""
        benchmark_changed(instance)
        now = set(instance.members.values_list("dataset_id", flat=True))
        boards_changed(self.touched | now, Kind.DESCRIPTION)


_JSON = ListWidget()


def _members(benchmark: Benchmark) -> list[dict[str, Any]]:
    rows = benchmark.members.order_by("position", "pk").select_related("dataset")
    return [{"dataset": row.dataset.slug, "counted": row.counted, "stand_ins": row.stand_ins} for row in rows]


def _read_members(text: Any) -> list[dict[str, Any]]:
    try:
        rows = _JSON.clean(text) or []
        members = [
            {
                "dataset": str(each["dataset"]),
                "counted": bool(each.get("counted", True)),
                "stand_ins": dict(each.get("stand_ins") or {}),
            }
            for each in rows
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise ValidationError(
            'Members are a JSON list in order: [{"dataset": "nfcorpus", "counted": true}, …].'
        ) from None
    known = set(Dataset.objects.values_list("slug", flat=True))
    unknown = [str(each["dataset"]) for each in members if each["dataset"] not in known]
    if unknown:
        raise ValidationError(f"There is no dataset {', '.join(unknown)}: give slugs of those that are here.")
    return members


def _set_members(benchmark: Benchmark, members: Iterable[dict[str, Any]]) -> None:
    keys = []
    for position, member in enumerate(members):
        dataset = Dataset.objects.get(slug=member["dataset"])
        values = {"position": position, "counted": member["counted"], "stand_ins": member["stand_ins"]}
        row, _ = BenchmarkMember.objects.update_or_create(
            benchmark=benchmark, dataset=dataset, defaults=values
        )
        keys.append(row.pk)
    for row in benchmark.members.exclude(pk__in=keys):
        row.delete()
