"""Check the OpenAPI document: complete, and equal to the API's responses."""

from typing import Any

import httpx
import msgspec

from korvet.console.routes import CALLS, PAGES, path_of
from tests.support.running_console import RunningConsole


def test_each_page_is_described_with_its_parameters_and_a_schema(browser: httpx.Client) -> None:
    document = browser.get("/api/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    rows = [(path_of(page), "GET") for page in PAGES]
    rows += [(path_of(call), call.method) for call in CALLS]
    assert sorted(rows) == sorted(
        (path, method.upper()) for path, found in document["paths"].items() for method in found
    )
    ids = [each["operationId"] for path in document["paths"].values() for each in path.values()]
    assert len(set(ids)) == len(ids)
    for page in PAGES:
        operation = document["paths"][path_of(page)]["get"]
        named = {each["name"] for each in operation["parameters"]}
        assert {each.name for each in page.query} <= named
        assert all(f"{{{name}" in page.path for name in named - {each.name for each in page.query})
        schema = operation["responses"]["200"]["content"]["application/json"]["schema"]
        name = schema["$ref"].rpartition("/")[2]
        assert document["components"]["schemas"][name]["description"]


def test_each_field_of_the_data_has_a_type(browser: httpx.Client) -> None:
    for name, schema in browser.get("/api/openapi.json").json()["components"]["schemas"].items():
        assert schema["type"] == "object" and schema["properties"], name
        assert all(schema["properties"].values()), name


def test_what_the_api_sends_has_the_described_type(
    console: RunningConsole, browser: httpx.Client
) -> None:
    row = console.api("/topics/orders/records", key="k1")["records"][0]
    values: dict[str, Any] = {"topic": "orders", "group": "billing", **row}
    for page in PAGES:
        path = path_of(page).format(**values)
        sent = browser.get(path, params={"id": "billing"})
        assert sent.status_code == 200, (path, sent.text)
        msgspec.json.decode(sent.content, type=page.returns)
        html = browser.get(
            path.removeprefix("/api") if page.path != "/" else "/", params={"id": "billing"}
        )
        assert html.status_code == 200, path
        assert html.text.count("<h1>") == 1, path
