"""What the API takes, described for its documentation. Nothing is validated here: forms do that."""

from __future__ import annotations

from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers

from evaluation.engines import ENGINES
from submissions.intake.models.intake import POOLINGS


@extend_schema_field({"type": "string", "format": "binary"})
class Upload(serializers.FileField):
    """A file that is sent; the generator would call it an address, which it is in answers."""


class CheckRequest(serializers.Serializer[Any]):
    """A file to check."""

    kind = serializers.ChoiceField(choices=["run", "model"], default="run")
    dataset = serializers.CharField(
        required=False, help_text="Slug; may be left out where the file is named after it."
    )
    file = Upload(required=False, help_text="A run.")
    checkpoint = Upload(required=False, help_text="Of kind=model: a zip or tar.zst.")
    upload = serializers.CharField(
        required=False, help_text="Instead of either: id of an upload that came in pieces. It stays."
    )
    engine = serializers.CharField(required=False, help_text="Of kind=model: the engine that is to run it.")


class SubmissionRequest(serializers.Serializer[Any]):
    """A submission of runs, or of a model that is run here.

    Of runs: `dataset` and `file` may repeat, and pair in order; a zip names its files `<dataset>.*`. Several files for
    one dataset (two to five; one `dataset` is enough then, or `<dataset>.<seed>.*` in a zip) are seeds of the system,
    and one result: their mean and deviation. Of a model:
    `engine`, the model (`checkpoint`, `checkpoint_id` or `hub_model`) where the engine needs one, and the datasets.
    """

    kind = serializers.ChoiceField(choices=["run", "model"], default="run")
    system = serializers.CharField(
        help_text="Slug or name of yours, a new name, or a JSON object of the fields below."
    )
    dataset = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Slugs: of runs one for each file, of a model those that it is run on.",
    )
    file = serializers.ListField(child=Upload(), required=False, help_text="Runs.")
    upload = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Ids of uploads that came in pieces: runs, after those in `file`, or the model. Used up on 201.",
    )
    seed = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Labels of seeds in the order of their files; may be one list with commas. Else file names tell.",
    )
    engine = serializers.ChoiceField(choices=list(ENGINES), required=False, help_text="What runs the model.")
    checkpoint = Upload(required=False, help_text="The model: a zip or tar.zst of its folder.")
    pooling = serializers.ChoiceField(
        choices=POOLINGS, required=False, help_text="Of a plain encoder whose files do not say it."
    )
    checkpoint_id = serializers.IntegerField(required=False, help_text="A model that your team sent before.")
    hub_model = serializers.CharField(
        required=False, help_text="owner/name on the hub, where the site fetches models."
    )
    hub_commit = serializers.CharField(required=False, help_text="Its commit, 40 hexadecimal digits.")
    benchmark = serializers.CharField(required=False, help_text="Instead of datasets: all that are here.")
    run = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Runs to re-rank or fuse: ids of submissions, or slugs of the site's own systems.",
    )
    device = serializers.ChoiceField(choices=["auto", "cpu", "gpu"], default="auto")
    reusable = serializers.BooleanField(default=False, help_text="Others may re-rank and fuse its runs.")
    configuration = serializers.CharField(required=False, help_text="Label of the configuration.")
    public = serializers.BooleanField(default=True)
    note = serializers.CharField(required=False, help_text="For your team alone.")
    team = serializers.CharField(
        required=False, help_text="Slug of the team of yours that a new system is of; left out: your first."
    )
    anonymous_until = serializers.DateField(
        required=False,
        help_text="Until that day, nine months away at most, a new system's team, authors and links are kept back.",
    )
    run_type = serializers.ChoiceField(
        choices=["automatic", "manual"], required=False, help_text="Needed in a round."
    )
    tag = serializers.CharField(
        required=False,
        help_text="Run tag: 1 to 24 letters, digits, dots, hyphens and underscores. In a round unique within the "
        "team's runs; left out, the one in the file.",
    )
    priority = serializers.IntegerField(
        required=False,
        help_text="Of the team's runs in the round, 1 first; left out, the next that is free.",
    )
    architecture = serializers.CharField(required=False, help_text="Needed for a new system.")
    description = serializers.CharField(required=False)
    paper = serializers.URLField(required=False)
    code = serializers.URLField(required=False)
    model = serializers.URLField(required=False)
    licence = serializers.CharField(required=False)
    parameters = serializers.CharField(
        required=False,
        help_text="JSON object or key=value pairs: of a model its engine's, prompts to the last blank; of runs what "
        "the system says of itself.",
    )
    training_datasets = serializers.ListField(
        child=serializers.CharField(), required=False, help_text="Slugs or names; `none` declares zero-shot."
    )
    adapted_to = serializers.ListField(
        child=serializers.CharField(),
        required=False,
        help_text="Slugs or names of datasets here whose corpus it saw, without labels.",
    )
    backbone = serializers.CharField(required=False)
    parameter_count = serializers.IntegerField(required=False, help_text="Weights of the model.")
    dimension = serializers.IntegerField(required=False)
    maximum_length = serializers.IntegerField(required=False)
    training_compute = serializers.CharField(required=False, help_text="For example 8 A100, 3 days.")
    open_weights = serializers.BooleanField(required=False, help_text="Left out: not said.")
    commercial_use = serializers.BooleanField(
        required=False, help_text="Whether the licence permits it; left out: not said."
    )
    closed_api = serializers.BooleanField(default=False, help_text="Runs behind somebody's paid API.")
    variant_of = serializers.CharField(required=False, help_text="Slug of a system here.")
    participant = serializers.CharField(
        required=False,
        help_text="Who made the runs, where that is not the team: boards show it in the team's place.",
    )
    authors = serializers.CharField(required=False, help_text="As in BibTeX: names joined by “and”.")
    year = serializers.IntegerField(required=False, help_text="When it came out.")
    bibtex = serializers.CharField(required=False)


class WithdrawRequest(serializers.Serializer[Any]):
    """Why a submission is withdrawn."""

    reason = serializers.CharField(max_length=300)


class VisibilityRequest(serializers.Serializer[Any]):
    """Who sees a submission."""

    public = serializers.BooleanField()


class PriorityRequest(serializers.Serializer[Any]):
    """A place among the team's runs in a round."""

    priority = serializers.IntegerField(
        min_value=1, help_text="1 first; the run that has it gets the old one."
    )


class ReusableRequest(serializers.Serializer[Any]):
    """Whether others may build on a submission's runs."""

    reusable = serializers.BooleanField()
