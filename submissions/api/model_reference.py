"""`/api/v1/models/`: what `/models/` says, as data."""

from typing import Any

from drf_spectacular.utils import extend_schema
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from evaluation.checkpoints.configuration import library_models
from evaluation.engines import ENGINES
from evaluation.engines.prompts import TEMPLATES
from leaderboard.api.fields import Answer, ReadView, flag_field, text_field, texts
from submissions.checkpoints import reference
from submissions.checkpoints.hub import fetches


class NamesField(serializers.ListField):
    """The names of engines."""

    child = text_field()

    def to_representation(self, value: Any) -> list[str]:
        """In their order."""
        return [engine.name for engine in value]


class ModelKindSerializer(Answer):
    """A kind of checkpoint."""

    kind = text_field()
    description = text_field(source="words")
    example = text_field("A well-known model of this kind.")
    engines = NamesField(help_text="What runs it.")
    model_types = texts("What `model_type` in its config.json may be; empty: it has none.")


class EngineParameterSerializer(Answer):
    """A parameter of an engine."""

    name = text_field()
    default = serializers.JSONField(help_text="A text, a number, true or false.")
    values = text_field("What it takes, in words.")
    description = text_field()


class EngineSerializer(Answer):
    """An engine."""

    name = text_field()
    title = text_field(source="label")
    architecture = text_field()
    description = text_field()
    checkpoints = texts("Kinds that it takes; empty: it runs no model.")
    runs = serializers.ListField(
        child=serializers.IntegerField(), help_text="How many runs it builds on: at least, at most."
    )
    parameters = EngineParameterSerializer(many=True)


class PromptTemplateSerializer(Answer):
    """How a family of models wants texts to begin."""

    family = text_field(source="label")
    query = text_field("`{task}` stands for an instruction.")
    document = text_field()
    card = serializers.URLField(source="source", help_text="What says so.")


class ModelReferenceSerializer(Answer):
    """What may be brought as a model."""

    transformers = text_field("The version whose types of models are listed.")
    hub_downloads = flag_field("Whether this site fetches models from the hub.")
    limits = serializers.DictField(child=serializers.IntegerField())
    kinds = ModelKindSerializer(many=True)
    engines = EngineSerializer(many=True)
    prompt_templates = PromptTemplateSerializer(many=True)


class ModelsView(ReadView):
    """What may be brought as a model."""

    @extend_schema(summary="Models that are taken", operation_id="models", responses=ModelReferenceSerializer)
    def get(self, request: Request) -> Response:
        """Kinds of checkpoints, engines and their parameters, types of models, prompts of families, and limits."""
        answer = {
            "transformers": library_models().version,
            "hub_downloads": fetches(),
            "limits": {limit.name: limit.value for limit in reference.limits()},
            "kinds": reference.kinds(),
            "engines": list(ENGINES.values()),
            "prompt_templates": TEMPLATES,
        }
        return Response(ModelReferenceSerializer(answer).data)
