"""`/api/v1/models/`: the content of `/models/` as data."""

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
    """List of engines, shown by name."""

    child = text_field()

    def to_representation(self, value: Any) -> list[str]:
        return [engine.name for engine in value]


class ModelKindSerializer(Answer):
    """A kind of checkpoint."""

    kind = text_field()
    description = text_field(source="words")
    example = text_field("A well-known model of this kind.")
    engines = NamesField(help_text="Engines that run this kind.")
    model_types = texts("Accepted values of `model_type` in config.json; empty if the kind has no `model_type`.")


class EngineParameterSerializer(Answer):
    """A parameter of an engine."""

    name = text_field()
    default = serializers.JSONField(help_text="A string, number, or boolean.")
    values = text_field("Accepted values, such as `an integer from 1 to 1000`.")
    description = text_field()


class EngineSerializer(Answer):
    """A search engine."""

    name = text_field()
    title = text_field(source="label")
    architecture = text_field()
    description = text_field()
    checkpoints = texts("Checkpoint kinds that the engine runs; empty if it does not use a model.")
    runs = serializers.ListField(
        child=serializers.IntegerField(), help_text="Minimum and maximum number of input runs."
    )
    parameters = EngineParameterSerializer(many=True)


class PromptTemplateSerializer(Answer):
    """The prompts that a model family expects."""

    family = text_field(source="label")
    query = text_field("`{task}` is a placeholder for an instruction.")
    document = text_field()
    card = serializers.URLField(source="source", help_text="Source of the prompts.")


class ModelReferenceSerializer(Answer):
    """Supported models, engines, and limits."""

    transformers = text_field("The transformers version whose model types are listed.")
    hub_downloads = flag_field(
        "Whether this site downloads models from the Hugging Face Hub, and images from registries."
    )
    limits = serializers.DictField(child=serializers.IntegerField())
    kinds = ModelKindSerializer(many=True)
    engines = EngineSerializer(many=True)
    prompt_templates = PromptTemplateSerializer(many=True)


class ModelsView(ReadView):
    """API view of supported models, engines, and limits."""

    @extend_schema(summary="Supported models", operation_id="models", responses=ModelReferenceSerializer)
    def get(self, request: Request) -> Response:
        """List checkpoint kinds, engines with their parameters, model types, prompt templates, and limits."""
        answer = {
            "transformers": library_models().version,
            "hub_downloads": fetches(),
            "limits": {limit.name: limit.value for limit in reference.limits()},
            "kinds": reference.kinds(),
            "engines": list(ENGINES.values()),
            "prompt_templates": TEMPLATES,
        }
        return Response(ModelReferenceSerializer(answer).data)
