"""What the read API answers about datasets, benchmarks and systems: these serializers write it, and are its schema."""

from typing import Any

from rest_framework import serializers
from rest_framework.fields import SkipField

from leaderboard.api.board_answers import GapSerializer, MeasuredSerializer
from leaderboard.api.fields import AddressField, Answer, shape, texts
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
    return serializers.DictField(child=serializers.FloatField(), help_text=text)


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

    name = serializers.CharField(source="file.name")
    kind = serializers.CharField(source="file.kind")
    description = serializers.CharField(source="file.description")
    size = serializers.IntegerField(source="file.size", help_text="Bytes, as downloaded.")
    sha256 = serializers.CharField(source="file.sha256", help_text="Of the bytes as downloaded.")
    url = AddressField(source="path")


class NamedSerializer(Answer):
    """Something with a page."""

    slug = serializers.CharField()
    name = serializers.CharField()


class DatasetSummarySerializer(NamedSerializer):
    """A dataset in the list of all."""

    task = serializers.CharField()
    domain = serializers.CharField()
    language = serializers.CharField(help_text="As ISO 639 has it.")
    licence = serializers.CharField(help_text="Empty where nobody said.")
    state = serializers.CharField(help_text="reported, published or collecting.")
    hidden = serializers.BooleanField(help_text="Whether the judgements stay with the scorer.")
    runs_only = serializers.BooleanField(help_text="Whether no corpus is kept here.")
    primary_measure = serializers.CharField()
    entries = serializers.IntegerField(source="number", help_text="Public results.")
    statistics = StatisticsSerializer()


class DatasetListSerializer(Answer):
    """Every dataset."""

    datasets = DatasetSummarySerializer(many=True)


class DatasetVersionSerializer(Answer):
    """The content of a dataset."""

    number = serializers.IntegerField()
    label = serializers.CharField()  # type: ignore[assignment]
    content_sha256 = serializers.CharField(
        required=False, help_text="Over the expanded corpus and queries; not there where queries are hidden."
    )
    statistics = serializers.DictField(help_text="Counts and checksums of its files.")


class QuarantinedSerializer(Answer):
    """A result that a curator took out of the ranking."""

    system = serializers.CharField()
    slug = serializers.CharField()
    reason = serializers.CharField(source="moderation_reason")


class DatasetSerializer(DatasetSummarySerializer):
    """A dataset with everything that its page says beside its board."""

    homepage = serializers.CharField()
    citation = serializers.CharField()
    description = serializers.CharField(help_text="Markdown.")
    protection = serializers.CharField(help_text="What a submission may learn of hidden judgements.")
    public_share = serializers.FloatField(help_text="Share of the queries that a competition's board shows.")
    daily_quota = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    monthly_quota = serializers.IntegerField(allow_null=True, help_text="Null: no limit.")
    measures = texts(help_text="Those that the board shows, the primary one first.")
    relevance_level = serializers.IntegerField(help_text="The lowest grade that counts as relevant.")
    drop_self_matches = serializers.BooleanField(
        help_text="Whether a document with the query's id is dropped."
    )
    candidates_only = serializers.BooleanField(
        help_text="Whether a query's judged documents are the candidates, and others are passed over."
    )
    runs_visibility = serializers.CharField(help_text="public, accepted, participants or curators.")
    queries_visibility = serializers.CharField(help_text="public, accepted, participants or curators.")
    documents_visibility = serializers.CharField(help_text="public, accepted, participants or curators.")
    ir_datasets_id = serializers.CharField()
    beir_name = serializers.CharField()
    reported_statistics = serializers.DictField(help_text="What publications say, by name.")
    created_at = serializers.DateTimeField()
    version = DatasetVersionSerializer(allow_null=True)
    awaiting_judgements = AwaitingRunSerializer(many=True)
    agreement = AddressField(
        allow_null=True, help_text="Where it is accepted; null where the dataset asks for none."
    )
    rounds = texts(help_text="Slugs.")
    withdrawn = TombstoneSerializer(many=True)
    quarantined = QuarantinedSerializer(many=True)
    benchmarks = NamedSerializer(many=True)
    parts = texts(help_text="Slugs of the datasets that it is the mean of.")
    example = ExampleSerializer(allow_null=True)
    snippets = SnippetSerializer(many=True)
    judgements = JudgedVersionSerializer(many=True, help_text="Every version, newest first.")
    part_of = serializers.CharField(allow_null=True, help_text="Slug of the dataset whose part it is.")
    twin = serializers.CharField(
        allow_null=True, help_text="Slug of the dataset with the other half of the topics: open, or hidden."
    )
    nearest = NeighbourSerializer(many=True)
    remarks = texts(
        help_text="Sentences on the collection, for example on judged documents that are missing."
    )


class MissingDatasetSerializer(NamedSerializer):
    """A dataset of a benchmark that takes no runs here."""

    why = serializers.CharField()
    bm25 = serializers.FloatField(
        allow_null=True, help_text="A published value of BM25; null: none is known."
    )
    bm25_source = serializers.CharField(help_text="Where it is published.")


class CompletenessSerializer(Answer):
    """How many of a known benchmark's datasets take runs here."""

    here = serializers.IntegerField()
    of = serializers.IntegerField()
    missing = MissingDatasetSerializer(many=True)


class BenchmarkSerializer(NamedSerializer):
    """A benchmark in the list of all."""

    description = serializers.CharField(help_text="Markdown.")
    measure = serializers.CharField()
    source = serializers.CharField(allow_null=True, help_text="Authors of the publication that defines it.")  # type: ignore[assignment]
    datasets_shown = serializers.IntegerField()
    datasets_counted = serializers.IntegerField(help_text="Those that its mean is of.")
    completeness = CompletenessSerializer(
        allow_null=True, help_text="Null for a benchmark that is not in the site's catalogue."
    )


class BenchmarkListSerializer(Answer):
    """Every benchmark."""

    benchmarks = BenchmarkSerializer(many=True)


class SeedSerializer(Answer):
    """One run of a seed set."""

    label = serializers.CharField()  # type: ignore[assignment]
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

    configuration = serializers.CharField()
    dataset_name = serializers.CharField()
    dataset_slug = serializers.CharField()
    reason = serializers.CharField()


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
    settled=serializers.CharField(help_text="The day; empty while it is open."),
)


class RecipeSerializer(serializers.Serializer[Any]):
    """How one result is made again; only `reason` where it cannot be."""

    dataset = serializers.CharField()
    configuration = serializers.CharField()
    reason = serializers.CharField(help_text="Why nobody else can make it again; empty where somebody can.")
    engine = serializers.CharField()
    parameters = serializers.DictField(help_text="All parameters of the engine.")
    checkpoint = serializers.DictField(
        help_text="`sha256`, and of its `files` by name; `hub_name` and `hub_commit`, or a `file` of the dataset."
    )
    language = serializers.CharField()
    drop_self_matches = serializers.BooleanField()
    depth = serializers.IntegerField(help_text="Documents a query.")
    tag = serializers.CharField(help_text="The run's last column.")
    run_sha256 = serializers.CharField(help_text="Of the run's text.")
    files = serializers.DictField(child=serializers.CharField(), help_text="Checksums of corpus and queries.")
    scores = serializers.DictField(child=serializers.FloatField(), help_text="Unrounded means by measure.")
    software = serializers.CharField(help_text="The version of the site.")


class SystemSerializer(NamedSerializer):
    """A system with all its public results."""

    architecture = serializers.CharField()
    architecture_label = serializers.CharField()
    participant = serializers.CharField(
        help_text="Who made its runs, where another team sent them; else empty."
    )
    description = serializers.CharField(help_text="Markdown.")
    parameters = serializers.DictField()
    team_name = serializers.CharField(allow_null=True)
    team_slug = serializers.CharField(allow_null=True)
    source_title = serializers.CharField(allow_null=True, help_text="Of the publication with its figures.")
    source_authors = serializers.CharField(allow_null=True)
    source_year = serializers.IntegerField(allow_null=True)
    source_venue = serializers.CharField(allow_null=True)
    source_url = serializers.CharField(allow_null=True)
    source_bibtex = serializers.CharField(allow_null=True)
    cited = serializers.CharField(help_text="The source as a text cites it; empty without one.")
    training_declared = serializers.BooleanField()
    training_datasets = texts(help_text="Slugs or names.")
    adapted_to = texts(help_text="Datasets whose corpus it saw, without labels.")
    backbone = serializers.CharField()
    paper_url = serializers.CharField()
    code_url = serializers.CharField()
    model_url = serializers.CharField()
    licence = serializers.CharField()
    bibtex = serializers.CharField()
    authors = serializers.CharField()
    year = serializers.IntegerField(allow_null=True)
    year_shown = serializers.IntegerField(allow_null=True, help_text="Its own year, else its source's.")
    variant_of_name = serializers.CharField(allow_null=True)
    variant_of_slug = serializers.CharField(allow_null=True)
    open_weights = serializers.BooleanField(allow_null=True, help_text="Null: nobody said.")
    commercial_use = serializers.BooleanField(allow_null=True, help_text="Null: nobody said.")
    closed_api = serializers.BooleanField()
    training_compute = serializers.CharField()
    anonymous_until = serializers.DateTimeField(allow_null=True)
    results = ResultSerializer(many=True)
    quarantined = QuarantinedResultSerializer(many=True)
    challenges = ChallengeSerializer(many=True)
    corrections = CorrectionSerializer(many=True)

    def get_fields(self) -> dict[str, Any]:
        """These, and the numbers that teams declare."""
        numbers = {
            each.name: serializers.IntegerField(allow_null=True, help_text=each.hint)
            for each in DECLARED_NUMBERS
        }
        return {**super().get_fields(), **numbers}


class SearchSerializer(serializers.Serializer[Any]):
    """What was looked for, and what was found, by kind."""

    query = serializers.CharField()
    found = FoundSerializer(many=True)
