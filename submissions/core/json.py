"""Strict JSON parser for API requests."""

from collections.abc import Mapping
from typing import IO, Any

from django.conf import settings
from django.core.exceptions import RequestDataTooBig
from rest_framework.exceptions import ParseError
from rest_framework.parsers import JSONParser

from leaderboard.core.text.json import read_json


class StrictJSONParser(JSONParser):
    """Parser for JSON bodies up to the size limit of forms; the default of all API calls (REST_FRAMEWORK)."""

    def parse(
        self,
        stream: IO[Any],
        media_type: str | None = None,
        parser_context: Mapping[str, Any] | None = None,
    ) -> Any:
        """Return the parsed value.

        Raises:
            ParseError: If the body is not valid UTF-8 JSON in the sense of `read_json`.
            RequestDataTooBig: If the body exceeds DATA_UPLOAD_MAX_MEMORY_SIZE.
        """
        limit = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
        body = stream.read(limit + 1)
        if len(body) > limit:
            raise RequestDataTooBig(f"The body exceeds {limit:,} bytes.")
        try:
            return read_json(body.decode())
        except ValueError as error:
            raise ParseError(f"The body is not valid JSON: {error}") from None
