"""The table of the console's pages, changes and calls, and the OpenAPI document of the API.

Each page is a row: its data as JSON under /api, and the same data in a template. Each call is a row
of the API alone.
"""

import re
from collections.abc import Awaitable, Callable
from functools import cache
from typing import Any, get_args

import msgspec
from starlette.convertors import Convertor, register_url_convertor

from korvet import __version__
from korvet.console import admin_calls, group_calls, record_json
from korvet.console.admin_calls import form_of
from korvet.console.pages import (
    actions,
    group,
    overview,
    record,
    records,
    reset,
    scripts,
    security,
    topic,
    topics,
    transactions,
)
from korvet.console.pages.actions import Action
from korvet.console.visit import Visit

Load = Callable[[Visit], Awaitable[Any]]


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of the query."""

    name: str
    sentence: str


class Page(msgspec.Struct, frozen=True):
    """A page: its path, its data and the template that shows them."""

    path: str
    template: str
    load: Load
    returns: type[msgspec.Struct]
    summary: str
    query: tuple[Parameter, ...] = ()
    load_form: Load | None = None
    """Load the page's form alone, to show it below the reason why the query was refused."""

    @property
    def api_path(self) -> str:
        """The path of the page's data."""
        return "/api/overview" if self.path == "/" else f"/api{self.path}"


class Call(msgspec.Struct, frozen=True):
    """A call of the API: the type of its body and of its result, None for none."""

    method: str
    path: str
    run: Callable[[Visit, Any], Awaitable[Any]]
    summary: str
    body: Any = None
    returns: Any = None
    query: tuple[Parameter, ...] = ()
    status: int = 200
    media_type: str = "application/json"

    @property
    def api_path(self) -> str:
        """The path of the call."""
        return f"/api{self.path}"


class Form(msgspec.Struct, frozen=True):
    """A change: the path that a form is sent to, and the page to show if it is refused."""

    path: str
    action: Action
    back: str


_PAGE = Parameter("page", "Number of the page, from 1.")
_SEARCH = Parameter("q", "Part of the name.")
_LIST = (
    _SEARCH,
    _PAGE,
    Parameter("size", "Rows on a page, at most 200."),
    Parameter("sort", "A field of the rows to sort by, such as name; -name is descending."),
)
_GROUP = Parameter("id", "Id of the group.")
_TO = Parameter("to", "earliest, latest, an offset, a time (ISO 8601) or an age (15m, 2h, 1d).")
_BROWSE = (
    Parameter("partition", "Read this partition only; default: the first 32."),
    Parameter(
        "from",
        "newest, earliest, an offset, a time (ISO 8601, UTC by default) or an age (15m, 2h, 1d).",
    ),
    Parameter("key", "Only records with this key."),
    Parameter("value", "Only records whose value contains this text."),
    Parameter(
        "field", "Only records whose value, JSON or Avro, has this field, such as user.name."
    ),
    Parameter("equals", "The value of that field."),
    Parameter("format", "auto, text, json, avro or hex."),
    Parameter("limit", "Max records, at most 200."),
    Parameter("cursor", "The cursor of the page before."),
    Parameter("before", "The field `older` of the page before, if it was of the newest records."),
)
_FORMAT = (Parameter("format", "auto, text, json, avro or hex."),)


class _Number(Convertor[int]):
    """A partition or offset in a path; more digits than a 64-bit number has are no match."""

    regex = "[0-9]{1,19}"

    def convert(self, value: str) -> int:
        return int(value)

    def to_string(self, value: int) -> str:
        return str(value)


register_url_convertor("number", _Number())
TOPIC, RECORD = "/topics/{topic}", "/topics/{topic}/records/{partition:number}/{offset:number}"

CLUSTER = "/v3/clusters/{cluster}"
INSTANCE = "/consumers/{group}/instances/{instance}"

PAGES = (
    Page("/", "overview.html", overview.load, overview.Overview, "State of the cluster."),
    Page("/topics", "topics.html", topics.load, topics.Topics,
        "Topics with size and slowest group.",
        (*_LIST, Parameter("lags", "0 leaves out the slowest groups."))),
    Page("/create-topic", "create_topic.html", topics.load_new, topics.NewTopic,
        "Defaults of a new topic."),
    Page(TOPIC, "topic.html", topic.load, topic.TopicPage,
        "A topic: partitions, consumers, configs.",
        (_PAGE, Parameter("key", "A key to look up in the topic's table."))),
    Page(f"{TOPIC}/configs", "configs.html", topic.load, topic.TopicPage,
        "A topic, for its configs."),
    Page(f"{TOPIC}/producers", "producers.html", topic.load_producers, topic.Producers,
        "Producers of a topic, and their open transactions."),
    Page(f"{TOPIC}/records", "records.html", records.load, records.Records,
        "A page of records, by offset, time or key, filtered.", _BROWSE, records.load_form),
    Page(f"{TOPIC}/produce", "produce.html", record.load_produce, record.ProduceForm,
        "Partitions of a topic, and the largest batch it takes.",
        (Parameter("again", "partition:offset of a record to send again."),)),
    Page("/groups", "groups.html", group.load_list, group.Groups,
        "Groups with state, members and lag.", _LIST),
    Page("/group", "group.html", group.load, group.GroupPage,
        "A group: members, offsets, lag over time, and why it is stuck.",
        (_GROUP, Parameter("history", "0 leaves out the lag over time."))),
    Page("/group/reset", "reset.html", reset.load, reset.ResetPage,
        "Preview of a reset of a group.", (_GROUP, Parameter("topic", "The topic."), _TO),
        reset.load_form),
    Page("/transactions", "transactions.html", transactions.load, transactions.Transactions,
        "Transactional ids, those with an open transaction first.", _LIST),
    Page("/scripts", "scripts.html", scripts.load, scripts.Scripts,
        "Lua scripts with version, calls, latency and errors.", (_SEARCH,)),
    Page("/users", "users.html", security.load_users, security.UsersPage, "Users."),
    Page("/acls", "acls.html", security.load_rules, security.RulesPage, "ACL rules."),
    Page("/quotas", "quotas.html", security.load_quotas, security.QuotasPage, "Quotas."),
    Page(RECORD, "record.html", record.load, record.OneRecord, "One record.", _FORMAT),
)  # fmt: skip

FORMS = (
    Form("/topics", actions.create_topic, "/create-topic"),
    Form(f"{TOPIC}/delete", actions.delete_topic, TOPIC),
    Form(f"{TOPIC}/partitions", actions.add_partitions, TOPIC),
    Form(f"{TOPIC}/configs", actions.alter_config, f"{TOPIC}/configs"),
    Form(f"{TOPIC}/produce", actions.produce, f"{TOPIC}/produce"),
    Form("/group/reset", reset.reset, "/group/reset"),
    Form("/group/delete", reset.delete, "/group"),
    Form("/users", security.set_user, "/users"),
    Form("/users/delete", security.delete_user, "/users"),
    Form("/acls", security.create_rule, "/acls"),
    Form("/acls/delete", security.delete_rule, "/acls"),
    Form("/quotas", security.set_quota, "/quotas"),
    Form(f"{RECORD}/delete-below", actions.delete_records, RECORD),
)


_IN_JSON = Parameter("format", "json or binary (base64); default: by the media type.")
CALLS = (
    Call("POST", TOPIC, record_json.produce, "Append records to a topic.",
        record_json.NewRecords, record_json.ProducedRecords, (_IN_JSON,)),
    Call("GET", f"{TOPIC}/partitions/{{partition:number}}/records", record_json.read,
        "Records of a partition from an offset on.", None, list[record_json.ReadRecord],
        (Parameter("offset", "The first offset, by default 0."),
         Parameter("max_bytes", "About the bytes of the records, at most 4 MiB."), _IN_JSON)),
    Call("GET", f"{TOPIC}/events", record_json.follow,
        "Server-sent events with the records of a topic, as they arrive.", None, str,
        (Parameter("partition", "This partition only."), Parameter(
            "from", "latest (default), earliest, an offset, a time or an age (15m, 2h, 1d)."),
         _IN_JSON), media_type="text/event-stream"),
    Call("POST", "/consumers/{group}", group_calls.create, "Create an instance of a consumer.",
        group_calls.NewConsumer, group_calls.CreatedConsumer),
    Call("DELETE", INSTANCE, group_calls.delete, "End an instance, which leaves its group.",
        status=204),
    Call("POST", f"{INSTANCE}/subscription", group_calls.subscribe,
        "Join the group with these topics.", group_calls.Subscription, status=204),
    Call("GET", f"{INSTANCE}/subscription", group_calls.subscription, "Topics of an instance.",
        None, group_calls.Subscription),
    Call("DELETE", f"{INSTANCE}/subscription", group_calls.unsubscribe, "Leave the group.",
        status=204),
    Call("GET", f"{INSTANCE}/assignments", group_calls.assignments, "Partitions of an instance.",
        None, group_calls.Assignment),
    Call("GET", f"{INSTANCE}/records", group_calls.records, "The next records of the group.", None,
        list[record_json.ReadRecord],
        (Parameter("timeout", "How long to wait for a record, ms; default 1000, at most 20000."),
         Parameter("max_bytes", "About the bytes of the records, at most 4 MiB."))),
    Call("POST", f"{INSTANCE}/offsets", group_calls.commit,
        "Commit all that was returned, or up to the last records that are done.",
        group_calls.DoneOffsets | None, status=204),
    Call("GET", "/v3/clusters", admin_calls.clusters, "The cluster, with its id.", None,
        admin_calls.Clusters),
    Call("POST", f"{CLUSTER}/topics", admin_calls.create_topic, "Create a topic.",
        admin_calls.NewTopic, admin_calls.CreatedTopic, status=201),
    Call("DELETE", f"{CLUSTER}{TOPIC}", form_of(actions.delete_topic, name="topic"),
        "Delete a topic.", status=204),
    Call("PATCH", f"{CLUSTER}{TOPIC}", admin_calls.add_partitions,
        "Raise the number of partitions.", admin_calls.PartitionCount, status=204),
    Call("POST", f"{CLUSTER}{TOPIC}/configs:alter", admin_calls.alter_configs,
        "Change configs of a topic.", admin_calls.ConfigChanges, status=204),
    Call("POST", f"{CLUSTER}/consumer-groups/{{group}}/offsets:reset", admin_calls.reset_group,
        "Move a group to a position in a topic.", admin_calls.GroupReset, status=204),
    Call("DELETE", f"{CLUSTER}/consumer-groups/{{group}}", form_of(reset.delete, id="group"),
        "Delete a group without members.", status=204),
    Call("POST", "/users", form_of(security.set_user), "Set the password of a user.",
        admin_calls.NewUser, status=204),
    Call("DELETE", "/users/{user}", form_of(security.delete_user, name="user"),
        "Delete a user.", status=204),
    Call("POST", "/acls", form_of(security.create_rule), "Add an ACL rule.", admin_calls.Rule,
        status=204),
    Call("DELETE", "/acls", form_of(security.delete_rule), "Delete an ACL rule.", admin_calls.Rule,
        status=204),
    Call("POST", "/quotas", admin_calls.set_quota, "Set or remove a quota.", admin_calls.Quota,
        status=204),
)  # fmt: skip

_PARAMETER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_TYPES = {"number": "integer", "path": "string", None: "string"}
_PATHS = {
    "topic": "Name of the topic.",
    "partition": "Number of the partition.",
    "offset": "Offset of the record.",
    "group": "Id of the group.",
    "instance": "Id of the instance.",
    "cluster": "Id of the cluster.",
    "user": "Name of the user.",
}


@cache
def openapi() -> bytes:
    """Return the OpenAPI document as JSON."""
    rows: list[Page | Call] = [*PAGES, *CALLS]
    found = [row.returns for row in rows] + [call.body for call in CALLS]
    types = [each for each in dict.fromkeys(found) if each is not None]
    schemas, components = msgspec.json.schema_components(
        types, ref_template="#/components/schemas/{name}"
    )
    by_type = dict(zip(types, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for row in rows:
        method = "get" if isinstance(row, Page) else row.method.lower()
        paths.setdefault(path_of(row), {})[method] = _operation(row, by_type)
    return msgspec.json.encode(
        {
            "openapi": "3.1.0",
            "info": {
                "title": "Korvet",
                "version": __version__,
                "description": "The data of the console's pages, and calls in the shapes of "
                "Confluent's REST proxy. Where security is on, use Basic authentication with a "
                "SCRAM user; ACL rules and quotas apply.",
            },
            "paths": paths,
            "components": {
                "schemas": {**components, "Failure": _FAILURE},
                "securitySchemes": {"basic": {"type": "http", "scheme": "basic"}},
            },
            "security": [{}, {"basic": []}],
        }
    )


_FAILURE = {
    "type": "object",
    "description": "A request that failed: a code of Confluent's REST proxy, and a sentence.",
    "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    "required": ["error_code", "message"],
}


def path_of(row: Page | Call) -> str:
    """Return the path in the API, as OpenAPI writes it."""
    return _PARAMETER.sub(r"{\1}", row.api_path)


def _operation(row: Page | Call, by_type: dict[Any, Any]) -> dict[str, Any]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": _PATHS[name],
            "schema": {"type": _TYPES[kind or None]},
        }
        for name, kind in _PARAMETER.findall(row.path)
    ]
    in_query = [
        {
            "name": each.name,
            "in": "query",
            "description": each.sentence,
            "schema": {"type": "string"},
        }
        for each in row.query
    ]
    name = re.sub(r"\W+", "_", path_of(row).removeprefix("/api/")).strip("_")
    failed = _content("The request failed.", {"$ref": "#/components/schemas/Failure"})
    status, body, kind = "200", None, "application/json"
    if isinstance(row, Call):
        status, body, kind = str(row.status), row.body, row.media_type
        if row.method != "GET":
            name = f"{row.method.lower()}_{name}"
    done: dict[str, Any] = {"description": row.summary}
    if row.returns is not None:
        done = _content(row.summary, by_type[row.returns], kind)
    found: dict[str, Any] = {
        "summary": row.summary,
        "operationId": name,
        "parameters": [*in_path, *in_query],
        "responses": {status: done, "4XX": failed, "503": failed},
    }
    if body is not None:
        is_required = type(None) not in get_args(body)
        found["requestBody"] = {"required": is_required, **_content("", by_type[body])}
        del found["requestBody"]["description"]
    return found


def _content(sentence: str, schema: Any, kind: str = "application/json") -> dict[str, Any]:
    return {"description": sentence, "content": {kind: {"schema": schema}}}
