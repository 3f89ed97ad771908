"""Check Avro in the console: decoded keys and values, search by field, files of schemas, a registry
that is away."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import SerializingProducer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from playwright.sync_api import Browser, expect

from korvet import Record
from korvet.avro.schema import Schema
from tests.console.test_browser import chromium  # noqa: F401
from tests.support.redis_servers import TestServer
from tests.support.running_console import RunningConsole, running_console
from tests.support.schema_registry import CUP, Registry, schema_registry

USER_INFO = "console:s3cret"
GUESTS = ("ann", "bo", "cy")


def produce(console: RunningConsole, registry: Registry, topic: str, count: int) -> None:
    """Append records with Confluent's serializers, as an application does."""
    options = {"url": registry.url, "basic.auth.user.info": USER_INFO}
    with SchemaRegistryClient(options) as client:
        producer = SerializingProducer(
            {
                "bootstrap.servers": console.bootstrap,
                "log_level": 0,
                "key.serializer": AvroSerializer(client, '"string"'),
                "value.serializer": AvroSerializer(client, json.dumps(CUP)),
            }
        )
        for at in range(count):
            guest = GUESTS[at % 3]
            value = {"tea": f"mint-{at}", "guest": {"name": guest}}
            producer.produce(topic, key=guest, value=value, partition=0)
        assert producer.flush(10) == 0


@pytest.fixture(scope="module")
def registry() -> Iterator[Registry]:
    with schema_registry(USER_INFO) as made:
        yield made


@pytest.fixture(scope="module")
def console(
    valkey_server: TestServer, registry: Registry, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningConsole]:
    """A console with a registry, and a directory with the schema of topic `bare`."""
    directory = tmp_path_factory.mktemp("schemas")
    (directory / "bare-value.avsc").write_text(json.dumps(CUP))
    (directory / "broken-value.avsc").write_text("{")
    settings = (
        f"schema.registry.url={registry.url}",
        f"schema.registry.basic.auth.user.info={USER_INFO}",
        f"avro.schema.directory={directory}",
    )
    with running_console(valkey_server, *settings) as made:
        for topic in ("cups", "bare", "broken", "other"):
            made.log.create_topic(topic, 1, {"offset.mode": "dense"})
        produce(made, registry, "cups", 9)
        bare = Schema(json.dumps(CUP)).encode({"tea": "bare", "guest": {"name": "dee"}})
        made.log.produce("bare", [Record(bare, b"k"), Record(b"\x08", b"k")])
        made.log.produce("broken", [Record(bare)])
        made.log.produce(
            "other",
            [
                Record(b'{"a": 1}', key=(7).to_bytes(8, "big")),
                Record(b"\0\0\0\x03\xe7abc", key=b"absent"),
                Record(b"\0\0\0\0\x02\xff", key=b"other"),
            ],
        )
        yield made


def test_keys_and_values_are_decoded_by_the_registry(console: RunningConsole) -> None:
    for how in ("auto", "avro"):
        rows = console.api("/topics/cups/records", format=how)["records"]
        assert json.loads(rows[0]["value"]["text"]) == {"tea": "mint-8", "guest": {"name": "cy"}}
        assert rows[0]["key"]["text"] == '"cy"' and rows[0]["value"]["format"] == "avro"
        assert rows[0]["value"]["note"].startswith("schema ")
    row = console.api("/topics/cups/records", format="hex")["records"][0]
    assert (row["value"]["format"], row["value"]["note"]) == ("hex", "")
    row = console.api("/topics/cups/records/0/4", format="avro")["record"]
    assert json.loads(row["value"]["text"])["tea"] == "mint-4"


def test_records_are_found_by_a_field_of_avro(console: RunningConsole) -> None:
    found = console.api("/topics/cups/records", field="guest.name", equals="bo")["records"]
    assert [row["offset"] for row in found] == [7, 4, 1]
    assert len(console.api("/topics/cups/records", field="guest.name")["records"]) == 9
    assert console.api("/topics/cups/records", field="guest.mail")["records"] == []
    for filters in ({"key": "cy"}, {"key": '"cy"'}, {"value": '"name":"cy"'}):
        assert len(console.api("/topics/cups/records", **filters)["records"]) == 3


def test_bare_avro_is_decoded_by_a_file(console: RunningConsole) -> None:
    wrong, good = console.api("/topics/bare/records")["records"]
    assert json.loads(good["value"]["text"])["guest"] == {"name": "dee"}
    assert (good["value"]["note"], good["key"]["text"]) == ("", "k")
    assert wrong["value"]["format"] == "hex" and "end too early" in wrong["value"]["note"]
    (row,) = console.api("/topics/broken/records")["records"]
    assert "broken-value.avsc: The schema is not valid" in row["value"]["note"]
    found = console.api("/topics/bare/records", field="tea", equals="bare")
    assert [row["offset"] for row in found["records"]] == [0]


def test_other_bytes_stay_as_they_are(console: RunningConsole, registry: Registry) -> None:
    foreign, absent, plain = console.api("/topics/other/records")["records"]
    assert (plain["value"]["text"], plain["value"]["format"]) == ('{"a": 1}', "json")
    assert (plain["key"]["format"], plain["key"]["note"]) == ("hex", "")
    assert absent["value"]["note"] == (f"The schema registry at {registry.url} has no schema 999.")
    assert foreign["value"]["format"] == "hex" and foreign["value"]["note"]
    row = console.api("/topics/other/records", format="avro")["records"][2]
    assert row["value"]["note"] == "It does not begin as Avro with the id of a schema."


def test_the_download_has_the_decoded_record(console: RunningConsole) -> None:
    with console.browser() as browser:
        found = browser.get("/topics/cups/records/0/0/download?part=json").json()
        assert found["key"] == "ann" and found["value"]["tea"] == "mint-0"


def test_without_a_schema_or_a_registry_a_sentence_says_so(valkey_server: TestServer) -> None:
    with running_console(valkey_server) as made:
        made.log.create_topic("cups", 1)
        made.log.produce("cups", [Record(b"\0\0\0\0\x01abc")])
        row = made.api("/topics/cups/records", format="avro")["records"][0]
        assert "set schema.registry.url" in row["value"]["note"]
        assert made.api("/topics/cups/records")["records"][0]["value"]["note"] == ""
    url = "schema.registry.url=http://ann:pw@host"
    away = "schema.registry.url=http://127.0.0.1:9"
    for setting, sentence in ((url, "without a password"), (away, "does not answer")):
        with running_console(valkey_server, setting) as made:
            made.log.create_topic("cups", 1)
            made.log.produce("cups", [Record(b"\0\0\0\0\x01abc")])
            row = made.api("/topics/cups/records", format="avro")["records"][0]
            assert (row["value"]["format"], sentence in row["value"]["note"]) == ("hex", True)
            assert "ann:" not in row["value"]["note"]


@pytest.mark.browser
def test_avro_is_chosen_found_and_followed_in_a_browser(
    chromium: Browser,  # noqa: F811
    console: RunningConsole,
    registry: Registry,
    tmp_path: Path,
) -> None:
    context = chromium.new_context(viewport={"width": 1000, "height": 620})
    context.set_default_timeout(15_000)
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda said: said.type == "error" and errors.append(said.text))
    page.goto(f"{console.url}/topics/cups/records")
    assert page.get_by_label("Show as").locator("option").all_inner_texts() == [
        "auto",
        "text",
        "JSON",
        "Avro",
        "hex",
    ]
    page.get_by_label("Show as").select_option("Avro")
    page.get_by_label("Field of JSON or Avro").fill("guest.name")
    page.get_by_label("equals").fill("ann")
    page.get_by_role("button", name="Find").click()
    expect(page.locator("#records tr")).to_have_count(3)
    expect(page.locator("#records tr").first).to_contain_text('"guest": {"name": "ann"}')
    page.get_by_role("button", name="Follow").click()
    produce(console, registry, "cups", 1)
    expect(page.locator("#records tr")).to_have_count(4)
    expect(page.locator("#records tr").first).to_contain_text('{"tea": "mint-0"')
    page.get_by_role("button", name="Following").click()
    page.locator("#records tr").first.get_by_role("link").click()
    page.get_by_role("link", name="Avro", exact=True).click()
    expect(page.locator("main")).to_contain_text('"tea": "mint-0"')
    expect(page.locator("main")).to_contain_text("schema 2")
    page.get_by_role("link", name="hex", exact=True).click()
    expect(page.locator("main")).to_contain_text("000000  0000 0000 02")
    context.close()
    assert errors == []
