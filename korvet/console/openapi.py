"""The OpenAPI document of the console's data, made from the table of pages."""

import re
from functools import cache
from typing import Any

import msgspec

from korvet import __version__
from korvet.console.routes import PAGES, Page

_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_TYPES = {"number": "integer", "path": "string", None: "string"}
_PATHS = {
    "topic": "Name of the topic.",
    "partition": "Number of the partition.",
    "offset": "Offset of the record.",
    "group": "Id of the group.",
}


@cache
def document() -> bytes:
    """Return the document as JSON."""
    types = list(dict.fromkeys(page.returns for page in PAGES))
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Korvet console",
                "version": __version__,
                "description": "The data of the console's pages. Where security is on, use Basic "
                "authentication with a SCRAM user; ACL rules apply.",
            },
            "paths": {
                path_of(page): {"get": _operation(page, by_type[page.returns])} for page in PAGES
            },
            "components": {
                "schemas": components,
                "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            },
            "security": [{}, {"basic": []}],
        }
    )


def path_of(page: Page) -> str:
    """Return the path of the page's data, as OpenAPI writes it."""
    return _PARAMETER.sub(r"{\1}", page.api_path)


def _operation(page: Page, schema: dict[str, Any]) -> dict[str, Any]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATHS[name],
            "schema": {"type": _TYPES[kind or None]},
        }
        for name, kind in _PARAMETER.findall(page.path)
    ]
    in_query = [
        {
            "name": each.name,
            "in": "query",
            "description": each.sentence,
            "schema": {"type": "string"},
        }
        for each in page.query
    ]
    failed = {"description": "`error`: a sentence.", "content": {"application/json": {}}}
    return {
        "summary": page.summary,
        "operationId": re.sub(r"\W+", "_", path_of(page).removeprefix("/api/")).strip("_"),
        "parameters": [*in_path, *in_query],
        "responses": {
            "200": {
                "description": page.summary,
                "content": {"application/json": {"schema": schema}},
            },
            "4XX": failed,
            "503": failed,
        },
    }
