"""Serializers and schema of API responses about datasets, benchmarks and systems."""

from typing import Any

from rest_framework import serializers
from rest_framework.fields import SkipField

from leaderboard.api.board_answers import GapSerializer, MeasuredSerializer, PublishedScoreSerializer
from leaderboard.api.fields import (
    AddressField,
    Answer,
    flag_field,
    integer_field,
    number_field,
    shape,
    text_field,
    texts,
)
from leaderboard.boards.dataset_details import AwaitingRun, JudgedVersion, LoadingSnippet, QueryExample
from leaderboard.boards.pages import Tombstone
from leaderboard.boards.system.page import Result
from leaderboard.comparison.search import SearchResult
from leaderboard.datasets.lists import DatasetStatistics
from leaderboard.models import DECLARED_NUMBERS, Challenge
from leaderboard.results.profiles.public import Neighbour
from leaderboard.results.significance.types import EntryCertainty
from leaderboard.systems.challenges import PublicChallenge
from leaderboard.systems.corrections import FieldChange
from leaderboard.systems.provenance import Recipe


class OptionalField(serializers.IntegerField):
    """An integer that is omitted if withheld."""

    def get_attribute(self, instance: Any) -> Any:
        """Return the value from a mapping. Raises SkipField if it is missing."""
        if self.field_name not in instance:
            raise SkipField
        return super().get_attribute(instance)


def _scores(text: str) -> serializers.DictField:
    return serializers.DictField(child=number_field(), help_text=text)


StatisticsSerializer = shape(
    DatasetStatistics,
    "DatasetStatistics",
    "Statistics of a collection as in Table 1 of the BEIR paper; null if unknown.",
    judgements=OptionalField(allow_null=True, required=False, help_text="Omitted if judgments are hidden."),
)
ExampleSerializer = shape(QueryExample, "Example", "A query and a document, truncated if they are long.")
SnippetSerializer = shape(LoadingSnippet, "Snippet", "Code that loads the dataset with one tool.")
JudgedVersionSerializer = shape(
    JudgedVersion, "JudgedVersion", "A version of the judgments and a description of its changes."
)
NeighbourSerializer = shape(
    Neighbour, "Neighbour", "A similar dataset; `overlap` of the vocabularies is between 0 and 1."
)
AwaitingRunSerializer = shape(AwaitingRun, "AwaitingRun", "A public run that will be scored once there are judgments.")
FoundSerializer = shape(SearchResult, "Found", "A search result.", url=AddressField(help_text="URL of its page."))
TombstoneSerializer = shape(Tombstone, "Tombstone", "Public remainder of a withdrawn result.")


class FileSerializer(Answer):
    """A file of a dataset."""

    name = text_field(source="file.name")
    kind = text_field(source="file.kind")
    description = text_field(source="file.description")
    size = integer_field("Size of the download in bytes.", source="file.size")
    sha256 = text_field("SHA-256 of the download.", source="file.sha256")
    url = AddressField(source="path")


class NamedSerializer(Answer):
    """An object with a page."""

    slug = text_field()
    name = text_field()


class DatasetSummarySerializer(NamedSerializer):
    """A dataset in the list of datasets."""

    task = text_field()
    domain = text_field()
    language = text_field("ISO 639 code.")
    licence = text_field("Empty if unknown.")
    state = text_field("reported, published or collecting.")
    hidden = flag_field("Whether only the scorer has the judgments.")
    runs_only = flag_field("Whether the site has no corpus and only scores uploaded runs.")
    primary_measure = text_field()
    entries = integer_field("Number of public results.", source="number")
    statistics = StatisticsSerializer()


class DatasetListSerializer(Answer):
    """All datasets."""

    datasets = DatasetSummarySerializer(many=True)


class DatasetVersionSerializer(Answer):
    """A version of a dataset's content."""

    number = integer_field()
    label = text_field()
    content_sha256 = text_field(
        "SHA-256 of the uncompressed corpus and queries; omitted if queries are hidden.", required=False
    )
    statistics = serializers.DictField(help_text="Counts and checksums of its files.")


class QuarantinedSerializer(Answer):
    """A result that a curator removed from the ranking."""

    system = text_field()
    slug = text_field()
    reason = text_field(source="moderation_reason")


class DatasetSerializer(DatasetSummarySerializer):
    """A dataset with all details except its board."""

    homepage = text_field()
    citation = text_field()
    description = text_field("Markdown.")
    protection = text_field("Policy on what submissions may reveal about hidden judgments.")
    public_share = number_field("Share of queries that the board of a competition uses.")
    daily_quota = integer_field("Submissions per day; null if unlimited.", allow_null=True)
    monthly_quota = integer_field("Submissions per month; null if unlimited.", allow_null=True)
    measures = texts("Measures of the board, primary measure first.")
    relevance_level = integer_field("Lowest grade of a relevant document.")
    drop_self_matches = flag_field("Whether documents with the id of the query are removed from its ranking.")
    candidates_only = flag_field("Whether the task is re-ranking: each query's candidates are its judged documents.")
    runs_visibility = text_field("public, accepted, participants or curators.")
    queries_visibility = text_field("public, accepted, participants or curators.")
    documents_visibility = text_field("public, accepted, participants or curators.")
    ir_datasets_id = text_field()
    beir_name = text_field()
    reported_statistics = serializers.DictField(help_text="Statistics from publications, by name.")
    created_at = serializers.DateTimeField()
    version = DatasetVersionSerializer(allow_null=True)
    awaiting_judgements = AwaitingRunSerializer(many=True)
    agreement = AddressField(allow_null=True, help_text="URL of the agreement; null if the dataset requires none.")
    rounds = texts("Slugs of rounds.")
    withdrawn = TombstoneSerializer(many=True)
    quarantined = QuarantinedSerializer(many=True)
    benchmarks = NamedSerializer(many=True)
    parts = texts("Slugs of the datasets that it averages.")
    example = ExampleSerializer(allow_null=True)
    snippets = SnippetSerializer(many=True)
    judgements = JudgedVersionSerializer(many=True, help_text="All versions, newest first.")
    part_of = text_field("Slug of the dataset that includes it.", allow_null=True)
    twin = text_field("Slug of the dataset with the other half of the topics, open or hidden.", allow_null=True)
    nearest = NeighbourSerializer(many=True)
    remarks = texts("Remarks on the collection, such as missing judged documents.")


class MissingDatasetSerializer(NamedSerializer):
    """A dataset of a benchmark that does not accept runs on this site."""

    why = text_field()
    bm25 = number_field("A published value of BM25; null if unknown.", allow_null=True)
    bm25_source = text_field("Publication of that value.")


class CompletenessSerializer(Answer):
    """Number of a benchmark's datasets that accept runs on this site."""

    here = integer_field()
    of = integer_field()
    missing = MissingDatasetSerializer(many=True)


class BenchmarkSerializer(NamedSerializer):
    """A benchmark in the list of benchmarks."""

    description = text_field("Markdown.")
    measure = text_field()
    source = text_field("Authors of the publication that defines it.", allow_null=True)
    datasets_shown = integer_field()
    datasets_counted = integer_field("Number of datasets that its mean includes.")
    completeness = CompletenessSerializer(allow_null=True, help_text="Null for benchmarks that are not in the catalog.")


class BenchmarkListSerializer(Answer):
    """All benchmarks."""

    benchmarks = BenchmarkSerializer(many=True)


class SeedSerializer(Answer):
    """A run of a seed set."""

    label = text_field()
    scores = _scores("Published values by measure.")


ResultSerializer = shape(
    Result,
    "SystemResult",
    "A public result of a system.",
    scores=_scores("Published values by measure."),
    measured=MeasuredSerializer(many=True),
    seeds=SeedSerializer(many=True),
    contamination_gap=GapSerializer(allow_null=True, help_text="Null if unknown."),
    published_score=PublishedScoreSerializer(
        allow_null=True, help_text="Published score of the same model in this measure; null if unknown."
    ),
    certainty=shape(
        EntryCertainty,
        "ResultCertainty",
        "Confidence interval and significance tests of the result's measure.",
    )(allow_null=True),
)


class QuarantinedResultSerializer(Answer):
    """A result of a system that a curator removed from the ranking."""

    configuration = text_field()
    dataset_name = text_field()
    dataset_slug = text_field()
    reason = text_field()


ChangeSerializer = shape(FieldChange, "Change", "A changed field; null values are withheld.")


class CorrectionSerializer(Answer):
    """Changes to a system's description on one day."""

    day = serializers.DateField()
    changes = ChangeSerializer(many=True)


ChallengeSerializer = shape(
    PublicChallenge,
    "Challenge",
    "A public challenge, with text and decision in Markdown.",
    claim=serializers.ChoiceField(choices=Challenge.Claim.choices),
    state=serializers.ChoiceField(choices=Challenge.State.choices),
    raised=serializers.DateField(),
    settled=text_field("Day of the decision; empty while the challenge is open."),
)


RecipeSerializer = shape(
    Recipe,
    "Recipe",
    "Recipe for reproducing a result, or only the `reason` why that is impossible.",
    reason=text_field("Why others cannot reproduce the result; empty if they can."),
    parameters=serializers.DictField(help_text="All parameters of the engine."),
    checkpoint=serializers.DictField(
        help_text="`sha256`, checksums of `files` by name, and `hub_name` with `hub_commit`, a `file` of the "
        "dataset, or the digest of a container `image`."
    ),
    depth=integer_field("Documents per query."),
    tag=text_field("Last column of the run."),
    run_sha256=text_field("SHA-256 of the run's text."),
    files=serializers.DictField(child=text_field(), help_text="Checksums of corpus and queries."),
    scores=_scores("Unrounded means by measure."),
    software=text_field("Version of the site."),
)


class SystemSerializer(NamedSerializer):
    """A system with all its public results."""

    architecture = text_field()
    architecture_label = text_field()
    participant = text_field("Producer of the runs, if another team submitted them; else empty.")
    description = text_field("Markdown.")
    parameters = serializers.DictField()
    team_name = text_field(allow_null=True)
    team_slug = text_field(allow_null=True)
    source_title = text_field("Title of the publication with its figures.", allow_null=True)
    source_authors = text_field(allow_null=True)
    source_year = integer_field(allow_null=True)
    source_venue = text_field(allow_null=True)
    source_url = text_field(allow_null=True)
    source_bibtex = text_field(allow_null=True)
    cited = text_field("In-text citation of the source; empty without one.")
    training_declared = flag_field()
    training_datasets = texts("Slugs or names of datasets.")
    adapted_to = texts("Datasets that only provided their corpus, without labels.")
    backbone = text_field()
    paper_url = text_field()
    code_url = text_field()
    model_url = text_field()
    licence = text_field()
    bibtex = text_field()
    authors = text_field()
    year = integer_field(allow_null=True)
    year_shown = integer_field("Year of the system, else of its source.", allow_null=True)
    variant_of_name = text_field(allow_null=True)
    variant_of_slug = text_field(allow_null=True)
    open_weights = flag_field("Null if unknown.", allow_null=True)
    commercial_use = flag_field("Null if unknown.", allow_null=True)
    closed_api = flag_field()
    training_compute = text_field()
    anonymous_until = serializers.DateTimeField(allow_null=True)
    results = ResultSerializer(many=True)
    quarantined = QuarantinedResultSerializer(many=True)
    challenges = ChallengeSerializer(many=True)
    corrections = CorrectionSerializer(many=True)

    def get_fields(self) -> dict[str, Any]:
        """Add the numbers that teams declare."""
        numbers = {number.name: integer_field(number.hint, allow_null=True) for number in DECLARED_NUMBERS}
        return {**super().get_fields(), **numbers}


class SearchSerializer(serializers.Serializer[Any]):
    """A search query and its results by kind."""

    query = text_field()
    found = FoundSerializer(many=True)
