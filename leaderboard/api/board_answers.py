"""What the read API answers about boards.

A board is written by `boards.exports.to_json`, as its page's export is; a test holds that to `BoardSerializer`.
"""

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from leaderboard.api.fields import Answer, flag_field, integer_field, number_field, shape, text_field, texts
from leaderboard.results.board_rows.measurements import Machine
from leaderboard.results.significance.statements import Gap
from leaderboard.results.significance.types import EntryCertainty, TestSettings

MachineSerializer = shape(Machine, "Machine", "A hardware class.")
EntryCertaintySerializer = shape(
    EntryCertainty,
    "Certainty",
    "What was found of a score: its interval and its tests, as the page on significance explains them.",
    p_best_is_bound=flag_field("The p-value is below what the permutations can show."),
    p_baseline_is_bound=flag_field(),
)
GapSerializer = shape(
    Gap,
    "ContaminationGap",
    "How much more a system gains over the baseline on public topics than on hidden ones, in the primary measure.",
    shown=flag_field("Whether the 95% interval lies above 0."),
)
CertaintySettingsSerializer = shape(
    TestSettings,
    "CertaintySettings",
    "How the certainty of a board's rows was found.",
    current=flag_field(
        "Whether it is of the board as it is now. Of one dataset's board alone.", required=False
    ),
)


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}], "nullable": True})
class CellField(serializers.JSONField):
    """A cell of a board: a number, a text, or null where the value is missing."""


class MeasuredSerializer(Answer):
    """What a result cost on one machine."""

    hardware = text_field("Slug of the hardware class.")
    protocol = text_field()
    measured_at = serializers.DateTimeField()
    figures = serializers.DictField(help_text="Latency in ms, memory in bytes, and more.")
    baseline = serializers.DictField(help_text="The same of BM25, on the same machine in the same job.")
    baseline_off = number_field(
        "By what share BM25 took another time than usual there; times are doubtful where it is large."
    )
    doubt = text_field(
        "Reason why its times are doubtful and not ranked; empty if they are not.", allow_blank=True
    )


class SortSerializer(Answer):
    """A column that rows are sorted by."""

    key = text_field()
    order = text_field("asc or desc.")


class ColumnSerializer(Answer):
    """A column of a board."""

    key = text_field("Its name in `values` of rows, and in `sort`.")
    label = text_field()
    group = text_field()
    group_slug = text_field("As `hide` takes it.")
    better = text_field("higher, lower, or empty.")
    unit = text_field()
    note = text_field()


class IntervalSerializer(Answer):
    """The ends of an interval."""

    low = number_field()
    high = number_field()


class RowSerializer(Answer):
    """A row of a board."""

    rank = integer_field("Null where it is not ranked.", allow_null=True)
    ranked_among = text_field("Rows of different kinds are never ranked together.")
    system = text_field()
    slug = text_field("Of the system.")
    configuration = text_field()
    baseline = flag_field()
    provenance = text_field()
    architecture = text_field()
    training = text_field("What the system had seen of the dataset.")
    comparison_group = text_field("Differences and ranks are within one group.")
    missing_queries = integer_field(allow_null=True)
    late = flag_field()
    manual = flag_field()
    pooled = flag_field("Whether the run was in the pool that was judged.")
    values = serializers.DictField(child=CellField(), help_text="The cells, by the keys of the columns.")
    spreads = serializers.DictField(child=text_field(), help_text="Of seed sets, as written.")
    withdrawn = text_field("Why, if it was since.", allow_null=True)
    quarantined = text_field("Why, if it is.", allow_null=True)
    challenged = flag_field()
    better_than_baseline = flag_field(
        "In its own test, at 0.05; false: not significant, or lower on hidden judgments; null: not known.",
        allow_null=True,
    )
    tied_with_best = flag_field(
        "Whether the tests of all pairs do not separate it from the best; null: not known.", allow_null=True
    )
    contamination_gap = GapSerializer(
        allow_null=True, help_text="Between public and hidden topics; null where it is not known."
    )
    marks = serializers.DictField(child=text_field(), help_text="What follows values, such as ‡.")
    doubtful = texts("Doubtful figures, each with the label of its column; their `values` are null.")
    measured = MeasuredSerializer(allow_null=True)
    certainty = EntryCertaintySerializer(allow_null=True, help_text="Of the measure in focus.")
    certainty_by_dataset = serializers.DictField(
        child=EntryCertaintySerializer(), help_text="The same on a benchmark, by the keys of columns."
    )
    intervals = serializers.DictField(child=IntervalSerializer(), help_text="By the keys of columns.")


class NamedResultSerializer(Answer):
    """A result of a board, by its system."""

    system = text_field()
    slug = text_field("Of the system.")
    configuration = text_field()


class VerdictSerializer(Answer):
    """What corrected tests say of the whole board, whichever rows the view has."""

    best = NamedResultSerializer()
    ties = NamedResultSerializer(many=True, help_text="Results that are not separable from the best.")
    baseline = NamedResultSerializer(allow_null=True)
    compared = integer_field("Results that were compared with the baseline.")
    better = integer_field("Those that are significantly better.")
    worse = integer_field("Those that are significantly worse.")
    revision = integer_field("Of the board that was tested.")
    at = serializers.DateTimeField()


class SummarySerializer(Answer):
    """What a board says in words, above its table, and the facts that it says it of. No filter changes it."""

    text = text_field()
    best = text_field("The slug of the best system.")
    measure = text_field()
    score = number_field("Of the best, as published.")
    relative = number_field("Of the best to the baseline: 0.1 is 10% more.", allow_null=True)
    better = flag_field(
        "Whether the best is better than the baseline at 0.05; null where nothing is known.", allow_null=True
    )
    p = number_field("Of the difference to the baseline; open judgements only.", allow_null=True)
    p_corrected = number_field(
        "The same, corrected over the board's comparisons with the baseline.", allow_null=True
    )
    tied = texts("Slugs of the systems that are not separable from the best.")
    cheapest = text_field(
        "The slug of the fastest system within 5% of the best, or not separable from it.", allow_null=True
    )
    latency_ms = number_field("Its mean latency.", allow_null=True)
    above_bound = flag_field(
        "Whether a best that is better than the baseline lies above the baseline's upper bound too; null "
        "where nothing is unjudged, or nothing is known.",
        allow_null=True,
    )


class BoardSerializer(Answer):
    """A board in one view."""

    title = text_field()
    measure = text_field("The measure in focus.")
    view = text_field()
    sort = text_field("The key of the column that decides the order.")
    order = text_field("asc or desc.")
    sorts = SortSerializer(many=True)
    total = integer_field("Rows of the whole board.")
    found = integer_field("Rows of this view.")
    as_of = serializers.DateTimeField(allow_null=True, help_text="Since when the board is so.")
    permalink = text_field()
    hardware = MachineSerializer(allow_null=True)
    hardware_choices = MachineSerializer(many=True)
    columns = ColumnSerializer(
        many=True,
        help_text="The same for every filter of rows; `values` are null in a column without values.",
    )
    certainty = CertaintySettingsSerializer(allow_null=True)
    summary = SummarySerializer(allow_null=True)
    verdict = VerdictSerializer(allow_null=True)
    least_difference = number_field(
        "Over hidden judgements: the least significant difference to the baseline.", allow_null=True
    )
    rows = RowSerializer(many=True)
    notes = texts("What a reader has to know.")
