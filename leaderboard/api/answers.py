"""What the read API answers about datasets, benchmarks and systems: these serializers write it, and are its schema."""

from typing import Any

from rest_framework import serializers
from rest_framework.fields import SkipField

from leaderboard.api.board_answers import GapSerializer, MeasuredSerializer
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
from leaderboard.comparison.search import Found
from leaderboard.datasets.lists import DatasetStatistics
from leaderboard.models import DECLARED_NUMBERS, Challenge
from leaderboard.results.profiles.public import Neighbour
from leaderboard.results.significance.types import EntryCertainty
from leaderboard.systems.challenges import PublicChallenge
from leaderboard.systems.corrections import FieldChange


class OptionalField(serializers.IntegerField):
    """A number, left out where it is not told."""

    def get_attribute(self, instance: Any) -> Any:
        """Of a mapping. Raises SkipField."""
        if self.field_name not in instance:
            raise SkipField
        return super().get_attribute(instance)


def _scores(text: str) -> serializers.DictField:
    return serializers.DictField(child=number_field(), help_text=text)


StatisticsSerializer = shape(
    DatasetStatistics,
    "DatasetStatistics",
    "What Table 1 of the BEIR paper says of a collection; null where it is not known.",
    judgements=OptionalField(
        allow_null=True, required=False, help_text="Left out where judgements are hidden."
    ),
)
ExampleSerializer = shape(QueryExample, "Example", "A query and a document, cut where they are long.")
SnippetSerializer = shape(LoadingSnippet, "Snippet", "How to load a dataset with one tool.")
JudgedVersionSerializer = shape(
    JudgedVersion, "JudgedVersion", "One version of the judgements, and what it changed, in words."
)
NeighbourSerializer = shape(Neighbour, "Neighbour", "Another dataset; `overlap` of vocabularies is 0 to 1.")
AwaitingRunSerializer = shape(AwaitingRun, "AwaitingRun", "A public run that waits for first judgements.")
FoundSerializer = shape(Found, "Found", "One answer of the search.", url=AddressField(help_text="Its page."))
TombstoneSerializer = shape(Tombstone, "Tombstone", "What remains of a result that was withdrawn.")


class FileSerializer(Answer):
    """One offered file."""

    name = text_field(source="file.name")
    kind = text_field(source="file.kind")
    description = text_field(source="file.description")
    size = integer_field("Bytes, as downloaded.", source="file.size")
    sha256 = text_field("Of the bytes as downloaded.", source="file.sha256")
    url = AddressField(source="path")


class NamedSerializer(Answer):
    """Something with a page."""

    slug = text_field()
    name = text_field()


class DatasetSummarySerializer(NamedSerializer):
    """A dataset in the list of all."""

    task = text_field()
    domain = text_field()
    language = text_field("As ISO 639 has it.")
    licence = text_field("Empty where nobody said.")
    state = text_field("reported, published or collecting.")
    hidden = flag_field("Whether the judgements stay with the scorer.")
    runs_only = flag_field("Whether no corpus is kept here.")
    primary_measure = text_field()
    entries = integer_field("Public results.", source="number")
    statistics = StatisticsSerializer()


class DatasetListSerializer(Answer):
    """Every dataset."""

    datasets = DatasetSummarySerializer(many=True)


class DatasetVersionSerializer(Answer):
    """The content of a dataset."""

    number = integer_field()
    label = text_field()
    content_sha256 = text_field(
        "Over the expanded corpus and queries; not there where queries are hidden.", required=False
    )
    statistics = serializers.DictField(help_text="Counts and checksums of its files.")


class QuarantinedSerializer(Answer):
    """A result that a curator took out of the ranking."""

    system = text_field()
    slug = text_field()
    reason = text_field(source="moderation_reason")


class DatasetSerializer(DatasetSummarySerializer):
    """A dataset with everything that its page says beside its board."""

    homepage = text_field()
    citation = text_field()
    description = text_field("Markdown.")
    protection = text_field("What a submission may learn of hidden judgements.")
    public_share = number_field("Share of the queries that a competition's board shows.")
    daily_quota = integer_field("Null: no limit.", allow_null=True)
    monthly_quota = integer_field("Null: no limit.", allow_null=True)
    measures = texts("Those that the board shows, the primary one first.")
    relevance_level = integer_field("The lowest grade that counts as relevant.")
    drop_self_matches = flag_field("Whether a document with the query's id is dropped.")
    candidates_only = flag_field(
        "Whether a query's judged documents are the candidates, and others are passed over."
    )
    runs_visibility = text_field("public, accepted, participants or curators.")
    queries_visibility = text_field("public, accepted, participants or curators.")
    documents_visibility = text_field("public, accepted, participants or curators.")
    ir_datasets_id = text_field()
    beir_name = text_field()
    reported_statistics = serializers.DictField(help_text="What publications say, by name.")
    created_at = serializers.DateTimeField()
    version = DatasetVersionSerializer(allow_null=True)
    awaiting_judgements = AwaitingRunSerializer(many=True)
    agreement = AddressField(
        allow_null=True, help_text="Where it is accepted; null where the dataset asks for none."
    )
    rounds = texts("Slugs.")
    withdrawn = TombstoneSerializer(many=True)
    quarantined = QuarantinedSerializer(many=True)
    benchmarks = NamedSerializer(many=True)
    parts = texts("Slugs of the datasets that it is the mean of.")
    example = ExampleSerializer(allow_null=True)
    snippets = SnippetSerializer(many=True)
    judgements = JudgedVersionSerializer(many=True, help_text="Every version, newest first.")
    part_of = text_field("Slug of the dataset whose part it is.", allow_null=True)
    twin = text_field(
        "Slug of the dataset with the other half of the topics: open, or hidden.", allow_null=True
    )
    nearest = NeighbourSerializer(many=True)
    remarks = texts("Sentences on the collection, for example on judged documents that are missing.")


class MissingDatasetSerializer(NamedSerializer):
    """A dataset of a benchmark that takes no runs here."""

    why = text_field()
    bm25 = number_field("A published value of BM25; null: none is known.", allow_null=True)
    bm25_source = text_field("Where it is published.")


class CompletenessSerializer(Answer):
    """How many of a known benchmark's datasets take runs here."""

    here = integer_field()
    of = integer_field()
    missing = MissingDatasetSerializer(many=True)


class BenchmarkSerializer(NamedSerializer):
    """A benchmark in the list of all."""

    description = text_field("Markdown.")
    measure = text_field()
    source = text_field("Authors of the publication that defines it.", allow_null=True)
    datasets_shown = integer_field()
    datasets_counted = integer_field("Those that its mean is of.")
    completeness = CompletenessSerializer(
        allow_null=True, help_text="Null for a benchmark that is not in the site's catalogue."
    )


class BenchmarkListSerializer(Answer):
    """Every benchmark."""

    benchmarks = BenchmarkSerializer(many=True)


class SeedSerializer(Answer):
    """One run of a seed set."""

    label = text_field()
    scores = _scores("Measure → published value.")


ResultSerializer = shape(
    Result,
    "SystemResult",
    "A public result of a system.",
    scores=_scores("Measure → published value."),
    measured=MeasuredSerializer(many=True),
    seeds=SeedSerializer(many=True),
    contamination_gap=GapSerializer(allow_null=True, help_text="Null where it is not known."),
    certainty=shape(
        EntryCertainty,
        "ResultCertainty",
        "What was found of the result's measure: its interval and its tests.",
    )(allow_null=True),
)


class QuarantinedResultSerializer(Answer):
    """A result of a system that a curator took out of the ranking."""

    configuration = text_field()
    dataset_name = text_field()
    dataset_slug = text_field()
    reason = text_field()


ChangeSerializer = shape(FieldChange, "Change", "A field that was changed; null where only that is told.")


class CorrectionSerializer(Answer):
    """What was changed of a system's description at one time."""

    day = serializers.DateField()
    changes = ChangeSerializer(many=True)


ChallengeSerializer = shape(
    PublicChallenge,
    "Challenge",
    "A challenge as everyone reads it, its text and the decision as Markdown.",
    claim=serializers.ChoiceField(choices=Challenge.Claim.choices),
    state=serializers.ChoiceField(choices=Challenge.State.choices),
    raised=serializers.DateField(),
    settled=text_field("The day; empty while it is open."),
)


class RecipeSerializer(serializers.Serializer[Any]):
    """How one result is made again; only `reason` where it cannot be."""

    dataset = text_field()
    configuration = text_field()
    reason = text_field("Why nobody else can make it again; empty where somebody can.")
    engine = text_field()
    parameters = serializers.DictField(help_text="All parameters of the engine.")
    checkpoint = serializers.DictField(
        help_text="`sha256`, and of its `files` by name; `hub_name` and `hub_commit`, or a `file` of the dataset."
    )
    language = text_field()
    drop_self_matches = flag_field()
    depth = integer_field("Documents a query.")
    tag = text_field("The run's last column.")
    run_sha256 = text_field("Of the run's text.")
    files = serializers.DictField(child=text_field(), help_text="Checksums of corpus and queries.")
    scores = serializers.DictField(child=number_field(), help_text="Unrounded means by measure.")
    software = text_field("The version of the site.")


class SystemSerializer(NamedSerializer):
    """A system with all its public results."""

    architecture = text_field()
    architecture_label = text_field()
    participant = text_field("Who made its runs, where another team sent them; else empty.")
    description = text_field("Markdown.")
    parameters = serializers.DictField()
    team_name = text_field(allow_null=True)
    team_slug = text_field(allow_null=True)
    source_title = text_field("Of the publication with its figures.", allow_null=True)
    source_authors = text_field(allow_null=True)
    source_year = integer_field(allow_null=True)
    source_venue = text_field(allow_null=True)
    source_url = text_field(allow_null=True)
    source_bibtex = text_field(allow_null=True)
    cited = text_field("The source as a text cites it; empty without one.")
    training_declared = flag_field()
    training_datasets = texts("Slugs or names.")
    adapted_to = texts("Datasets whose corpus it saw, without labels.")
    backbone = text_field()
    paper_url = text_field()
    code_url = text_field()
    model_url = text_field()
    licence = text_field()
    bibtex = text_field()
    authors = text_field()
    year = integer_field(allow_null=True)
    year_shown = integer_field("Its own year, else its source's.", allow_null=True)
    variant_of_name = text_field(allow_null=True)
    variant_of_slug = text_field(allow_null=True)
    open_weights = flag_field("Null: nobody said.", allow_null=True)
    commercial_use = flag_field("Null: nobody said.", allow_null=True)
    closed_api = flag_field()
    training_compute = text_field()
    anonymous_until = serializers.DateTimeField(allow_null=True)
    results = ResultSerializer(many=True)
    quarantined = QuarantinedResultSerializer(many=True)
    challenges = ChallengeSerializer(many=True)
    corrections = CorrectionSerializer(many=True)

    def get_fields(self) -> dict[str, Any]:
        """These, and the numbers that teams declare."""
        numbers = {each.name: integer_field(each.hint, allow_null=True) for each in DECLARED_NUMBERS}
        return {**super().get_fields(), **numbers}


class SearchSerializer(serializers.Serializer[Any]):
    """What was looked for, and what was found, by kind."""

    query = text_field()
    found = FoundSerializer(many=True)
