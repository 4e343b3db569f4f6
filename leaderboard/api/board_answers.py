"""What the read API answers about boards.

A board is written by `boards.exports.to_json`, as its page's export is; a test holds that to `BoardSerializer`.
"""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from leaderboard.api.fields import Answer, shape, texts
from leaderboard.results.board_rows.measurements import Machine
from leaderboard.results.significance.statements import Gap
from leaderboard.results.significance.types import EntryCertainty, TestSettings

MachineSerializer = shape(Machine, "Machine", "A hardware class.")
EntryCertaintySerializer = shape(
    EntryCertainty,
    "Certainty",
    "What was found of a score: its interval and its tests, as the page on significance explains them.",
    p_best_is_bound=serializers.BooleanField(
        help_text="The p-value is below what the permutations can show."
    ),
    p_baseline_is_bound=serializers.BooleanField(),
)
GapSerializer = shape(
    Gap,
    "ContaminationGap",
    "How much more a system gains over the baseline on public topics than on hidden ones, in the primary measure.",
    shown=serializers.BooleanField(help_text="Whether the 95% interval lies above 0."),
)
CertaintySettingsSerializer = shape(
    TestSettings,
    "CertaintySettings",
    "How the certainty of a board's rows was found.",
    current=serializers.BooleanField(
        required=False, help_text="Whether it is of the board as it is now. Of one dataset's board alone."
    ),
)


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}], "nullable": True})
class CellField(serializers.JSONField):
    """A cell of a board: a number, a text, or null where the value is missing."""


class MeasuredSerializer(Answer):
    """What a result cost on one machine."""

    hardware = serializers.CharField(help_text="Slug of the hardware class.")
    protocol = serializers.CharField()
    measured_at = serializers.DateTimeField()
    figures = serializers.DictField(help_text="Latency in ms, memory in bytes, and more.")
    baseline = serializers.DictField(help_text="The same of BM25, on the same machine in the same job.")
    baseline_off = serializers.FloatField(
        help_text="By what share BM25 took another time than usual there; times are doubtful where it is large."
    )
    doubt = serializers.CharField(
        allow_blank=True, help_text="Reason why its times are doubtful and not ranked; empty if they are not."
    )


class SortSerializer(Answer):
    """A column that rows are sorted by."""

    key = serializers.CharField()
    order = serializers.CharField(help_text="asc or desc.")


class ColumnSerializer(Answer):
    """A column of a board."""

    key = serializers.CharField(help_text="Its name in `values` of rows, and in `sort`.")
    label = serializers.CharField()  # type: ignore[assignment]
    group = serializers.CharField()
    group_slug = serializers.CharField(help_text="As `hide` takes it.")
    better = serializers.CharField(help_text="higher, lower, or empty.")
    unit = serializers.CharField()
    note = serializers.CharField()


class IntervalSerializer(Answer):
    """The ends of an interval."""

    low = serializers.FloatField()
    high = serializers.FloatField()


class RowSerializer(Answer):
    """A row of a board."""

    rank = serializers.IntegerField(allow_null=True, help_text="Null where it is not ranked.")
    ranked_among = serializers.CharField(help_text="Rows of different kinds are never ranked together.")
    system = serializers.CharField()
    slug = serializers.CharField(help_text="Of the system.")
    configuration = serializers.CharField()
    baseline = serializers.BooleanField()
    provenance = serializers.CharField()
    architecture = serializers.CharField()
    training = serializers.CharField(help_text="What the system had seen of the dataset.")
    comparison_group = serializers.CharField(help_text="Differences and ranks are within one group.")
    missing_queries = serializers.IntegerField(allow_null=True)
    late = serializers.BooleanField()
    manual = serializers.BooleanField()
    pooled = serializers.BooleanField(help_text="Whether the run was in the pool that was judged.")
    values = serializers.DictField(child=CellField(), help_text="The cells, by the keys of the columns.")
    spreads = serializers.DictField(child=serializers.CharField(), help_text="Of seed sets, as written.")
    withdrawn = serializers.CharField(allow_null=True, help_text="Why, if it was since.")
    quarantined = serializers.CharField(allow_null=True, help_text="Why, if it is.")
    challenged = serializers.BooleanField()
    better_than_baseline = serializers.BooleanField(
        allow_null=True,
        help_text="In its own test, at 0.05; false: not significant, or lower on hidden judgments; null: not known.",
    )
    tied_with_best = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the tests of all pairs do not separate it from the best; null: not known.",
    )
    contamination_gap = GapSerializer(
        allow_null=True, help_text="Between public and hidden topics; null where it is not known."
    )
    marks = serializers.DictField(child=serializers.CharField(), help_text="What follows values, such as ‡.")
    doubtful = texts(
        help_text="Doubtful figures, each with the label of its column; their `values` are null."
    )
    measured = MeasuredSerializer(allow_null=True)
    certainty = EntryCertaintySerializer(allow_null=True, help_text="Of the measure in focus.")
    certainty_by_dataset = serializers.DictField(
        child=EntryCertaintySerializer(), help_text="The same on a benchmark, by the keys of columns."
    )
    intervals = serializers.DictField(child=IntervalSerializer(), help_text="By the keys of columns.")


class NamedResultSerializer(Answer):
    """A result of a board, by its system."""

    system = serializers.CharField()
    slug = serializers.CharField(help_text="Of the system.")
    configuration = serializers.CharField()


class VerdictSerializer(Answer):
    """What corrected tests say of the whole board, whichever rows the view has."""

    best = NamedResultSerializer()
    ties = NamedResultSerializer(many=True, help_text="Results that are not separable from the best.")
    baseline = NamedResultSerializer(allow_null=True)
    compared = serializers.IntegerField(help_text="Results that were compared with the baseline.")
    better = serializers.IntegerField(help_text="Those that are significantly better.")
    worse = serializers.IntegerField(help_text="Those that are significantly worse.")
    revision = serializers.IntegerField(help_text="Of the board that was tested.")
    at = serializers.DateTimeField()


class SummarySerializer(Answer):
    """What a board says in words, above its table, and the facts that it says it of. No filter changes it."""

    text = serializers.CharField()
    best = serializers.CharField(help_text="The slug of the best system.")
    measure = serializers.CharField()
    score = serializers.FloatField(help_text="Of the best, as published.")
    relative = serializers.FloatField(
        allow_null=True, help_text="Of the best to the baseline: 0.1 is 10% more."
    )
    better = serializers.BooleanField(
        allow_null=True,
        help_text="Whether the best is better than the baseline at 0.05; null where nothing is known.",
    )
    p = serializers.FloatField(
        allow_null=True, help_text="Of the difference to the baseline; open judgements only."
    )
    p_corrected = serializers.FloatField(
        allow_null=True, help_text="The same, corrected over the board's comparisons with the baseline."
    )
    tied = texts(help_text="Slugs of the systems that are not separable from the best.")
    cheapest = serializers.CharField(
        allow_null=True,
        help_text="The slug of the fastest system within 5% of the best, or not separable from it.",
    )
    latency_ms = serializers.FloatField(allow_null=True, help_text="Its mean latency.")
    above_bound = serializers.BooleanField(
        allow_null=True,
        help_text="Whether a best that is better than the baseline lies above the baseline's upper bound too; null "
        "where nothing is unjudged, or nothing is known.",
    )


class BoardSerializer(Answer):
    """A board in one view."""

    title = serializers.CharField()
    measure = serializers.CharField(help_text="The measure in focus.")
    view = serializers.CharField()
    sort = serializers.CharField(help_text="The key of the column that decides the order.")
    order = serializers.CharField(help_text="asc or desc.")
    sorts = SortSerializer(many=True)
    total = serializers.IntegerField(help_text="Rows of the whole board.")
    found = serializers.IntegerField(help_text="Rows of this view.")
    as_of = serializers.DateTimeField(allow_null=True, help_text="Since when the board is so.")
    permalink = serializers.CharField()
    hardware = MachineSerializer(allow_null=True)
    hardware_choices = MachineSerializer(many=True)
    columns = ColumnSerializer(
        many=True,
        help_text="The same for every filter of rows; `values` are null in a column without values.",
    )
    certainty = CertaintySettingsSerializer(allow_null=True)
    summary = SummarySerializer(allow_null=True)
    verdict = VerdictSerializer(allow_null=True)
    least_difference = serializers.FloatField(
        allow_null=True, help_text="Over hidden judgements: the least significant difference to the baseline."
    )
    rows = RowSerializer(many=True)
    notes = texts(help_text="What a reader has to know.")
