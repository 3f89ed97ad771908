"""Check the console's protection: headers, hosts, forms, sign-in, rights."""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import quote

import httpx
import pytest

from korvet import Record
from korvet.console.pages.record import _address
from korvet.console.routes import FORMS, PAGES
from korvet.console.sessions import ConsoleSession, Sessions
from korvet.console.visit import is_loopback
from tests.support.redis_servers import TestServer, server
from tests.support.running_console import (
    RunningConsole,
    running_console,
    secured_console,
    send,
    token_in,
)


def test_each_response_forbids_inline_scripts_frames_and_sniffing(browser: httpx.Client) -> None:
    for path in ("/", "/static/console.js", "/api/overview", "/nothing", "/topics/orders/records"):
        headers = browser.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy, path
        assert "unsafe" not in policy
        assert headers["x-content-type-options"] == "nosniff"


def test_no_page_has_an_inline_script_or_style(browser: httpx.Client) -> None:
    for path in paths():
        if path.startswith("/api/"):
            continue
        text = browser.get(path.replace("open", "orders"), params={"id": "billing"}).text
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=|javascript:", text)
        assert not re.search(r"""(?:src|href|action)=["'](?:https?:)?//""", text), (
            "needs no internet"
        )


def test_names_and_values_are_escaped(console: RunningConsole, browser: httpx.Client) -> None:
    console.log.create_topic("hostile", 1)
    bad = b"<script>alert(1)</script>"
    console.log.produce("hostile", [Record(bad, key=bad, headers=[("<b>", bad)])])
    page = browser.get("/topics/hostile/records").text
    assert "&lt;script&gt;" in page and "<script>alert" not in page and "<b>" not in page
    forged = browser.get("/topics?done=<script>alert(1)</script>Call+now&mark=1").text
    assert "<script>alert" not in forged and "Call now" not in forged
    console.log.delete_topic("hostile")


def test_the_port_is_not_served_under_another_name(console: RunningConsole) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "evil.example:9090", ""):
        for path in ("/", "/api/overview", "/metrics", "/metrics/kafka", "/snapshot"):
            found = httpx.get(f"{console.url}{path}", headers={"Host": host})
            assert found.status_code in (400, 421), (host, path)
        assert httpx.get(f"{console.url}/livez", headers={"Host": host}).status_code == 200
    port = console.url.rpartition(":")[2]
    assert httpx.get(f"{console.url}/", headers={"Host": f"localhost:{port}"}).status_code == 200


def test_the_console_has_no_page_of_a_workers_socket(browser: httpx.Client) -> None:
    for path in ("/snapshot", "/scrape", "/%73napshot", "/snapshot?x=1"):
        assert browser.get(path).status_code == 404, path


def test_a_form_needs_the_token_of_its_session(console: RunningConsole) -> None:
    with console.browser() as one, console.browser() as other:
        token = token_in(one.get("/create-topic").text)
        other.get("/create-topic")
        form = {"name": "x", "partitions": "1", "csrf": token}
        assert other.post("/topics", data=form).status_code == 403
        assert one.post("/topics", data={**form, "csrf": ""}).status_code == 403
        headers = {"Origin": "http://evil.example"}
        assert one.post("/topics", data=form, headers=headers).status_code == 403
        assert "x" not in [topic.name for topic in console.log.topics()]


def test_every_form_refuses_a_post_without_a_token(browser: httpx.Client) -> None:
    values = {"topic": "orders", "partition": "0", "offset": "0"}
    for form in FORMS:
        path = re.sub(r"\{(\w+)[^}]*\}", lambda match: values[match[1]], form.path)
        assert browser.post(path, data={}).status_code == 403, path


def test_the_cookie_is_for_this_site_and_not_for_scripts(browser: httpx.Client) -> None:
    cookie = browser.get("/").headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie


def test_a_cookie_of_another_key_or_a_changed_one_is_no_session() -> None:
    mine, other = Sessions(), Sessions()
    cookie = mine.encode(mine.begin("ann", "m"))
    assert mine.decode(cookie) is not None
    assert other.decode(cookie) is None
    assert mine.decode("x" + cookie[1:]) is None
    assert mine.decode("") is None and mine.decode("é.ü") is None
    assert mine.decode(mine.encode(ConsoleSession("id", "ann", "m", 1.0))) is None, "it has ended"


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.8.8.8", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("10.0.0.1", False),
        ("::ffff:10.0.0.1", False),
        ("evil", False),
        ("", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_clients_of_other_machines_may_only_read(
    valkey_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("korvet.console.visit.is_loopback", lambda host: False)
    for sets, status in (((), 403), (("console.remote.write=true",), 200)):
        with running_console(valkey_server, *sets) as made, made.browser() as browser:
            page = browser.get("/topics")
            assert page.status_code == 200
            assert ("Read-only" in page.text) is (status == 403)
            assert ("/create-topic" in page.text) is (status == 200)
            created = send(browser, "/create-topic", "/topics", name="x", partitions="1")
            assert created.status_code == status
            assert len(made.log.topics()) == (status == 200)


def test_while_redis_is_away_each_page_says_so() -> None:
    with server("valkey") as away, running_console(away) as made, made.browser() as browser:
        assert browser.get("/").status_code == 200
        os.kill(away.pid, signal.SIGKILL)
        found = browser.get("/topics")
        assert found.status_code == 503 and "Redis" in found.text
        assert browser.get("/api/topics").json()["message"].startswith("Redis: ")
        assert browser.get("/livez").status_code == 200


def test_the_console_works_under_the_least_redis_user_and_shows_no_password(
    redis_server: TestServer,
) -> None:
    with running_console(redis_server, user="least") as made, made.browser() as browser:
        made.log.create_topic("open", 1, {"offset.mode": "dense"})
        made.log.produce("open", [Record(b"v", key=b"k")])
        made.log.reset("g", "open", "earliest")
        for path in [*paths(), "/api/openapi.json"]:
            found = browser.get(path, params={"id": "g"})
            assert found.status_code == 200, (path, found.text)
            assert "redis-password" not in found.text, path
        assert "redis-cli -s /" in browser.get("/topics/open/records/0/0").text


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("redis://u:secret@r.example:6380/0", "-h r.example -p 6380 "),
        ("redis://r.example", "-h r.example -p 6379 "),
        ("rediss://:secret@r.example:6380", "--tls -h r.example -p 6380 "),
        ("redis+cluster://a:1,b:2", "-c -h a -p 1 "),
        ("redis+sentinel://u:secret@a:1/main", ""),
        ("unix://u:secret@/run/redis.sock?db=1", "-s /run/redis.sock "),
    ],
)
def test_the_command_of_redis_cli_has_the_address_and_no_password(url: str, options: str) -> None:
    assert _address(url) == options


# With security.


@pytest.fixture(scope="module")
def secured(valkey_server: TestServer) -> Iterator[RunningConsole]:
    """A console whose broker has ACLs: ann may read topic `open`, admin everything."""
    with secured_console(valkey_server, password="secret-a") as made:
        made.add_user("ann", "secret-b")
        for name in ("open", "closed"):
            made.log.create_topic(name, 1)
            made.log.produce(name, [Record(b"inside " + name.encode())])
        made.log.reset("g", "open", "earliest")
        with made.server.client() as client:
            rule = b'["TOPIC","LITERAL","open","User:ann","*","READ","ALLOW"]'
            client.hset(f"{made.namespace}:acls", rule, "")
            client.hset(f"{made.namespace}:acls", ":version", "7")
        yield made


def signed_in(secured: RunningConsole, user: str, password: str) -> httpx.Client:
    made = secured.browser()
    page = send(made, "/sign-in", "/sign-in?to=/topics", user=user, password=password)
    assert page.status_code == 200 and page.url.path == "/topics", page.text
    return made


def paths() -> list[str]:
    values = {"topic": "open", "partition": "0", "offset": "0", "group": "g"}
    return [
        re.sub(r"\{(\w+)[^}]*\}", lambda match: values[match[1]], path)
        for page in PAGES
        for path in (page.path, page.api_path)
    ]


def test_before_the_sign_in_no_page_is_served(secured: RunningConsole) -> None:
    with secured.browser() as browser:
        for path in [*paths(), "/api/openapi.json", "/nothing"]:
            found = browser.get(path)
            if path.startswith("/api/"):
                assert found.status_code == 401, path
                assert found.headers["www-authenticate"].startswith("Basic")
            else:
                assert found.status_code == 303, path
                assert found.headers["location"].startswith("/sign-in?to=/")
            assert "inside" not in found.text and "open" not in found.text


def test_probes_and_metrics_need_no_sign_in(secured: RunningConsole) -> None:
    with secured.browser() as browser:
        browser.get("/sign-in")
        for path in ("/livez", "/readyz", "/metrics"):
            assert browser.get(path).status_code == 200, path


@pytest.mark.parametrize(("user", "password"), [("ann", "wrong"), ("nobody", "x"), ("ann", "")])
def test_a_wrong_password_and_an_unknown_user_get_one_response(
    secured: RunningConsole, user: str, password: str
) -> None:
    with secured.browser() as browser:
        page = send(browser, "/sign-in", "/sign-in", user=user, password=password)
        assert page.status_code == 401 and "The name or the password is wrong." in page.text
        assert browser.get("/topics").status_code == 303
    found = httpx.get(f"{secured.url}/api/topics", auth=(user, password))
    assert found.status_code == 401


def test_the_sign_in_leads_to_pages_of_this_site_only(secured: RunningConsole) -> None:
    for to in ("//evil.example", "https://evil.example", "/\\evil.example"):
        with secured.browser() as browser:
            csrf = token_in(browser.get("/sign-in").text)
            form = {"csrf": csrf, "user": "ann", "password": "secret-b"}
            found = browser.post("/sign-in", params={"to": to}, data=form)
            assert found.headers["location"] == "/"


def test_a_user_sees_and_changes_what_the_rules_allow(secured: RunningConsole) -> None:
    with closing(signed_in(secured, "ann", "secret-b")) as ann:
        assert [row["name"] for row in ann.get("/api/topics").json()["topics"]] == ["open"]
        assert "inside open" in ann.get("/topics/open/records").text
        closed = ann.get("/topics/closed/records")
        assert closed.status_code == 403 and "inside" not in closed.text
        overview = ann.get("/api/overview").json()
        assert overview["redis"] is None and overview["findings"] == []
        assert ann.get("/api/topics/open").json()["configs"] == []
        for action, fields in {
            "/topics": {"name": "made", "partitions": "1"},
            "/topics/open/delete": {"name": "open"},
            "/topics/open/produce": {"value": "x"},
            "/topics/open/configs": {"name": "retention.ms", "value": "1"},
            "/topics/open/partitions": {"count": "9"},
            "/topics/open/records/0/0/delete-below": {},
        }.items():
            page = send(ann, "/topics/open", action, **fields)
            assert page.status_code in (403, 404), (action, page.status_code)
    assert [topic.name for topic in secured.log.topics()] == ["closed", "open"]
    assert len(list(secured.log.records("open", 0))) == 1


def test_a_super_user_may_do_everything(secured: RunningConsole) -> None:
    with closing(signed_in(secured, "admin", "secret-a")) as admin:
        names = [row["name"] for row in admin.get("/api/topics").json()["topics"]]
        assert names == ["closed", "open"]
        assert admin.get("/api/overview").json()["redis"]["memory_bytes"] > 0


def test_the_api_takes_basic_authentication(secured: RunningConsole) -> None:
    found = httpx.get(f"{secured.url}/api/topics", auth=("ann", "secret-b"))
    assert [row["name"] for row in found.json()["topics"]] == ["open"]


def test_a_new_password_ends_the_sessions_of_the_user(secured: RunningConsole) -> None:
    secured.add_user("bob", "first")
    with closing(signed_in(secured, "bob", "first")) as bob:
        assert bob.get("/topics").status_code == 200
        secured.add_user("bob", "second")
        assert bob.get("/topics").status_code == 303


def test_signing_out_forgets_the_session(secured: RunningConsole) -> None:
    with closing(signed_in(secured, "ann", "secret-b")) as ann:
        held = dict(ann.cookies)
        ann.post("/sign-out", data={"csrf": token_in(ann.get("/topics").text)})
        assert ann.get("/topics").status_code == 303
        with closing(secured.browser()) as thief:
            thief.cookies.update(held)
            assert thief.get("/topics").status_code == 303


def test_too_many_ended_sessions_end_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("korvet.console.sessions.MAX_ENDED", 2)
    sessions = Sessions()
    kept, *others = [sessions.begin("ann") for _ in range(4)]
    cookies = [sessions.encode(each) for each in (kept, *others)]
    for each in others[:2]:
        sessions.end(each)
    assert [sessions.decode(each) is None for each in cookies] == [False, True, True, False]
    sessions.end(others[2])
    assert [sessions.decode(each) is None for each in cookies] == [True] * 4


def test_the_reset_page_names_no_hidden_topic(secured: RunningConsole) -> None:
    for name in ("open", "closed"):
        secured.log.reset("g2", name, "earliest")
    with secured.server.client() as client:
        rule = b'["GROUP","LITERAL","g2","User:ann","*","READ","ALLOW"]'
        client.hset(f"{secured.namespace}:acls", rule, "")
        client.hset(f"{secured.namespace}:acls", ":version", "8")
    with closing(signed_in(secured, "ann", "secret-b")) as ann:
        while (found := ann.get("/api/group/reset?id=g2")).status_code == 403:
            pass
        assert found.json()["topics"] == ["open"]


_ODD = ("%00", "%ff", "a%2Fb", "..%2F..", "%F0%9F%98%80", "x" * 3000, "%3Cscript%3E", "-1", "{}",
        "9" * 19, "9" * 30, "9" * 5000)  # fmt: skip


@pytest.mark.parametrize("odd", _ODD)
def test_odd_names_in_paths_and_queries_get_a_response(browser: httpx.Client, odd: str) -> None:
    for path in (
        f"/topics/{odd}",
        f"/topics/{odd}/records",
        f"/topics/orders/records?partition={odd}",
        f"/topics/orders/records?from={odd}&key={odd}&value={odd}&field={odd}&equals={odd}",
        f"/topics/orders/records?cursor={odd}:{odd}",
        f"/topics/orders/records/{odd}/0",
        f"/topics/orders/records/0/{odd}/download",
        f"/topics?q={odd}&page={odd}",
        f"/group?id={odd}",
        f"/group/reset?id={odd}&topic={odd}&to={odd}",
        f"/group/reset?id=billing&topic=orders&to={odd}",
        f"/static/{odd}",
        f"/{odd}",
        f"/api/{odd}",
    ):
        assert browser.get(path).status_code in (200, 400, 404, 421), path


@pytest.mark.parametrize("host", ["[", "[::1", "a:b:c", "localhost:x", "\xff", "[::1]"])
def test_odd_hosts_get_a_response(console: RunningConsole, host: str) -> None:
    found = httpx.get(f"{console.url}/topics", headers={"Host": host.encode("latin-1")})
    assert found.status_code in (200, 400, 421), found.text


@pytest.mark.parametrize("odd", ["\x00", "\udcff", "a\r\nb", "9" * 30, "ü" * 300, "<default>", ""])
def test_odd_values_in_forms_get_a_response(browser: httpx.Client, odd: str) -> None:
    csrf = token_in(browser.get("/create-topic").text)
    for form in FORMS:
        path = form.path.replace("{topic}", "orders").replace("{partition:number}", "0")
        path = path.replace("{offset:number}", "0")
        names = ("name", "partitions", "count", "value", "key", "headers", "partition", "configs",
                 "id", "topic", "offsets", "password", "principal", "operation", "user",
                 "resource_type", "client-id", "ip", "encoding")  # fmt: skip
        body = "&".join(
            [f"csrf={csrf}", *(f"{name}={quote(odd, errors='surrogateescape')}" for name in names)]
        )
        found = browser.post(
            path,
            content=body,
            headers={"Content-Type": "application/x-www-form-urlencoded"},
        )
        assert found.status_code in (303, 400, 403, 404), (path, found.status_code, found.text)
