"""The bodies of calls: JSON as `read_json` takes it."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from leaderboard.core.text.json import read_json


class StrictJSONParser(JSONParser):
    """A JSON body as `read_json` reads it, no larger than a form may be. The default of all calls (REST_FRAMEWORK)."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """The value. Raises ParseError for what is no usable JSON in UTF-8, RequestDataTooBig for a large body."""
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig(f"The body is over {limit:,} bytes.")
        try:
            return read_json(body.decode())
        except ValueError as error:
            raise ParseError(f"The body is not JSON that can be used: {error}") from None
