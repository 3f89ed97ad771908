"""Check the API table: one row an API, within the versions of codecs, true of its handler."""

import pytest

from docs.generate.protocol import CLAIMED, docstring, heading, render
from korvet.apis import BY_KEY, TABLE, Api

rows = pytest.mark.parametrize("api", TABLE, ids=lambda api: api.name)


def test_keys_are_in_order_and_unique() -> None:
    keys = [api.key for api in TABLE]
    assert keys == sorted(set(keys))
    assert list(BY_KEY.values()) == list(TABLE)


@rows
def test_request_and_response_have_the_same_versions(api: Api) -> None:
    request, response = (shape.__message__ for shape in (api.request, api.response))
    assert (request.key, request.versions) == (response.key, response.versions)
    assert api.versions[1] <= request.versions[1]


@rows
def test_a_request_has_the_name_of_its_api(api: Api) -> None:
    assert api.request.__name__ == f"{api.name}Request"
    assert api.response.__name__ == f"{api.name}Response"
    assert api.handler.__name__ == api.handler.__module__.rpartition(".")[2]


@rows
def test_the_handlers_docstring_begins_with_the_name(api: Api) -> None:
    assert heading(api) == api.name


@rows
def test_the_lists_of_a_handlers_docstring_have_the_three_known_names(api: Api) -> None:
    for line in docstring(api).splitlines():
        if line.istitle() and " " not in line.strip("."):
            assert line in ("Behaviour", "Versions"), line


@rows
def test_what_kafka_claims_is_served_to_its_highest_version(api: Api) -> None:
    if api.key in CLAIMED:
        name, lowest, highest = CLAIMED[api.key]
        assert name == api.name
        assert api.versions[0] <= lowest and api.versions[1] == highest


def test_the_page_names_every_api_once_as_served_or_not() -> None:
    page = render()
    served = page.partition("## Not supported")[0]
    for key, (name, _, _) in CLAIMED.items():
        assert (f"| [{name}](" in served) == (key in BY_KEY)
        assert page.count(f"| {key} | [{name}](") + page.count(f"| {key} | {name} |") == 1
