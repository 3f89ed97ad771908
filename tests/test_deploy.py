"""Check the files of deploy/: they parse, and name metrics, labels and settings that exist."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from korvet.base.metrics import Metrics

ROOT = Path(__file__).parents[1]
DEPLOY = ROOT / "deploy"
BOARD: dict[str, Any] = json.loads((DEPLOY / "grafana/korvet.json").read_text())
RULES: dict[str, Any] = yaml.safe_load((DEPLOY / "prometheus/korvet.rules.yml").read_text())
ALERTS = [rule for group in RULES["groups"] for rule in group["rules"]]
MONITORING = (ROOT / "docs/operations/monitoring.md").read_text()

NAME = re.compile(r"\b(korvet_\w+)")
SELECTOR = re.compile(r"\b(korvet_\w+)\{([^}]*)\}")
LABEL = re.compile(r"(\w+)\s*(?:=~|!~|!=|=)")
GROUPED = re.compile(r"\bby \(([^)]*)\)")
FROM_PROMETHEUS = {"job", "instance", "le", "server"}


def exposed() -> dict[str, set[str]]:
    """Return the labels of each row that /metrics can have, by its name."""
    found = {"korvet_build_info": {"version", "python"}}
    for family in Metrics().snapshot():
        ends = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
        for end in ends[family.kind]:
            found[family.name + end] = set(family.labels)
    return found


def board_queries() -> list[str]:
    """Return every query of the board, with those of its variables."""
    panels = [target["expr"] for panel in BOARD["panels"] for target in panel.get("targets", [])]
    variables = [
        each["definition"] for each in BOARD["templating"]["list"] if each["type"] == "query"
    ]
    return panels + variables


QUERIES = board_queries() + [rule["expr"] for rule in ALERTS]


@pytest.mark.parametrize("query", QUERIES)
def test_every_query_names_metrics_and_labels_that_exist(query: str) -> None:
    rows = exposed()
    names = NAME.findall(query)
    assert [name for name in names if name not in rows] == []
    for name, selector in SELECTOR.findall(query):
        assert set(LABEL.findall(selector)) <= rows[name] | FROM_PROMETHEUS, name
    for labels in GROUPED.findall(query):
        known = FROM_PROMETHEUS.union(*(rows[name] for name in names))
        assert set(labels.replace(" ", "").split(",")) <= known


def test_every_metric_family_of_the_data_path_is_on_the_board() -> None:
    shown = {name for query in board_queries() for name in NAME.findall(query)}
    for name in ("request", "fetch_work", "fetch_record_age", "script", "background_task"):
        assert f"korvet_{name}_seconds_bucket" in shown


def test_panels_do_not_overlap_and_have_a_unit() -> None:
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    taken: set[tuple[int, int]] = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert not cells & taken and max(x for x, _ in cells) < 24, panel["title"]
        taken |= cells
        if panel["type"] != "row":
            assert panel["fieldConfig"]["defaults"]["unit"]
            assert panel["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("rule", ALERTS, ids=lambda rule: rule["alert"])
def test_every_alert_has_a_severity_a_summary_and_a_line_in_the_runbook(
    rule: dict[str, Any],
) -> None:
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert rule["annotations"]["summary"].endswith(".")
    assert f"| `{rule['alert']}` |" in MONITORING


def test_every_alert_of_the_runbook_exists() -> None:
    listed = re.findall(r"^\| `(Korvet\w+)` \|", MONITORING, re.MULTILINE)
    assert sorted(listed) == sorted(rule["alert"] for rule in ALERTS)
