"""Serializers and schema of boards.

`boards.exports.to_json` writes boards, both here and for the export of their pages; a test compares its output with
`BoardSerializer`.
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
    "Confidence interval and significance tests of a score, explained on the page about significance.",
    p_best_is_bound=flag_field("Whether the p-value is only an upper bound, limited by the number of permutations."),
    p_baseline_is_bound=flag_field(),
    test=text_field("Name of the test against the baseline."),
    tested_over=text_field("Unit of the test, and of wins, ties, and losses: `queries` or `datasets`."),
)
GapSerializer = shape(
    Gap,
    "ContaminationGap",
    "Difference between a system's gain over the baseline on public and on hidden topics, in the primary measure.",
    shown=flag_field("Whether the 95% interval is above 0."),
)
CertaintySettingsSerializer = shape(
    TestSettings,
    "CertaintySettings",
    "Settings of the significance tests of a board's rows.",
    current=flag_field(
        "Whether the tests apply to the current state of the board. Dataset boards only.", required=False
    ),
)


@extend_schema_field({"oneOf": [{"type": "number"}, {"type": "string"}], "nullable": True})
class CellField(serializers.JSONField):
    """A cell of a board: a number, a text, or null if the value is missing."""


class MeasuredSerializer(Answer):
    """Cost of a result on one machine."""

    hardware = text_field("Slug of the hardware class.")
    protocol = text_field()
    measured_at = serializers.DateTimeField()
    figures = serializers.DictField(help_text="Latency in ms, memory in bytes, and more.")
    baseline = serializers.DictField(help_text="Figures of BM25 on the same machine in the same job.")
    baseline_off = number_field(
        "Relative deviation of BM25 from its usual time on this machine; large values make times doubtful."
    )
    doubt = text_field("Why times are doubtful and not ranked; empty if they are reliable.", allow_blank=True)


class SortSerializer(Answer):
    """A column by which rows are sorted."""

    key = text_field()
    order = text_field("asc or desc.")


class ColumnSerializer(Answer):
    """A column of a board."""

    key = text_field("Name of the column in `values` of rows and in `sort`.")
    label = text_field()
    group = text_field()
    group_slug = text_field("Value for the parameter `hide`.")
    better = text_field("higher, lower or empty.")
    unit = text_field()
    note = text_field()


class IntervalSerializer(Answer):
    """Bounds of an interval."""

    low = number_field()
    high = number_field()


class PublishedScoreSerializer(Answer):
    """Score that a publication reports for the same model on the same dataset."""

    value = number_field()
    difference = number_field("The row's score minus the published one.")
    source = text_field("Publication, the newest one if several report a score.")


class RowSerializer(Answer):
    """A row of a board."""

    rank = integer_field("Null if the row is not ranked.", allow_null=True)
    ranked_among = text_field(
        "Kind of rows among which the row is ranked; reported rows are ranked by source and dataset revision."
    )
    system = text_field()
    slug = text_field("Slug of the system.")
    configuration = text_field()
    baseline = flag_field()
    provenance = text_field()
    architecture = text_field()
    training = text_field("Relation of the system's training data to the dataset.")
    comparison_group = text_field("Group within which differences and ranks are computed.")
    missing_queries = integer_field(allow_null=True)
    late = flag_field()
    manual = flag_field()
    pooled = flag_field("Whether the run contributed to the judged pool.")
    values = serializers.DictField(child=CellField(), help_text="Cells by column key.")
    spreads = serializers.DictField(child=text_field(), help_text="Formatted spreads of seed sets, by column key.")
    withdrawn = text_field("Reason, if the result was withdrawn since.", allow_null=True)
    quarantined = text_field("Reason, if the result is quarantined.", allow_null=True)
    challenged = flag_field()
    better_than_baseline = flag_field(
        "Whether it is significant at 0.05 in its own test; false if lower on hidden judgments; null if unknown.",
        allow_null=True,
    )
    tied_with_best = flag_field(
        "Whether the tests of all pairs do not separate the row from the best; null if unknown.", allow_null=True
    )
    contamination_gap = GapSerializer(
        allow_null=True, help_text="Gap between public and hidden topics; null if unknown."
    )
    published = PublishedScoreSerializer(
        allow_null=True, help_text="Published score of the same model in the selected measure; null if unknown."
    )
    marks = serializers.DictField(child=text_field(), help_text="Marks after values by column key: ‡, †, ¶, °, ?, *.")
    doubtful = texts("Doubtful figures with the labels of their columns; their `values` are null.")
    measured = MeasuredSerializer(allow_null=True)
    certainty = EntryCertaintySerializer(allow_null=True, help_text="Certainty of the selected measure.")
    certainty_by_dataset = serializers.DictField(
        child=EntryCertaintySerializer(), help_text="On benchmarks, certainty by column key."
    )
    intervals = serializers.DictField(child=IntervalSerializer(), help_text="Intervals by column key.")


class NamedResultSerializer(Answer):
    """A result of a board, identified by its system."""

    system = text_field()
    slug = text_field("Slug of the system.")
    configuration = text_field()


class VerdictSerializer(Answer):
    """Result of the corrected tests for the whole board, independent of the view's rows."""

    best = NamedResultSerializer()
    ties = NamedResultSerializer(many=True, help_text="Results that are not separable from the best.")
    baseline = NamedResultSerializer(allow_null=True)
    compared = integer_field("Number of results compared with the baseline.")
    better = integer_field("Number of significantly better results.")
    worse = integer_field("Number of significantly worse results.")
    revision = integer_field("Revision of the tested board.")
    at = serializers.DateTimeField()


class SummarySerializer(Answer):
    """Sentence above a board's table, and the facts that it states. Filters do not change it."""

    text = text_field()
    best = text_field("Slug of the best system.")
    measure = text_field()
    score = number_field("Published score of the best system.")
    relative = number_field("Relative difference between best system and baseline: 0.1 is 10% more.", allow_null=True)
    better = flag_field("Whether the best is better than the baseline at 0.05; null if unknown.", allow_null=True)
    p = number_field("p-value of the difference from the baseline; open judgments only.", allow_null=True)
    p_corrected = number_field(
        "p-value, corrected for all comparisons of the board with the baseline.", allow_null=True
    )
    tied = texts("Slugs of the systems that are not separable from the best.")
    cheapest = text_field(
        "Slug of the fastest system within 5% of the best, or not separable from it.", allow_null=True
    )
    latency_ms = number_field("Mean latency of that system.", allow_null=True)
    above_bound = flag_field(
        "Whether a best system better than the baseline also exceeds the baseline's upper bound; null if "
        "all documents are judged, or if unknown.",
        allow_null=True,
    )


class SliceSerializer(Answer):
    """A subset of the judged queries."""

    name = text_field("Value for the parameter `slice`.")
    label = text_field()
    queries = integer_field("Number of queries in the slice.")
    judged_queries = integer_field("Number of all judged queries.")


class BoardSerializer(Answer):
    """A board in one view."""

    title = text_field()
    measure = text_field("Selected measure.")
    slice = SliceSerializer(allow_null=True, help_text="Slice to which all scores refer; null for all queries.")
    slice_choices = SliceSerializer(many=True, help_text="Slices of a dataset with open judgments.")
    view = text_field()
    sort = text_field("Key of the column that decides the order.")
    order = text_field("asc or desc.")
    sorts = SortSerializer(many=True)
    total = integer_field("Number of rows of the whole board.")
    found = integer_field("Number of rows of this view.")
    as_of = serializers.DateTimeField(allow_null=True, help_text="Time of the latest change to the board.")
    permalink = text_field()
    hardware = MachineSerializer(allow_null=True)
    hardware_choices = MachineSerializer(many=True)
    columns = ColumnSerializer(
        many=True,
        help_text="Independent of row filters; `values` are null in a column without values.",
    )
    certainty = CertaintySettingsSerializer(allow_null=True)
    summary = SummarySerializer(allow_null=True)
    verdict = VerdictSerializer(allow_null=True)
    least_difference = number_field(
        "On hidden judgments: smallest significant difference from the baseline.", allow_null=True
    )
    rows = RowSerializer(many=True)
    notes = texts("Notes for readers.")
