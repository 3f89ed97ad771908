"""The table of needs: what each API requires."""

from korvet.apis import TABLE
from korvet.broker.acl_table import NEEDS, EachConfig, InHandler, Need, Whole


def render() -> str:
    """Return the table of the operations that each API requires."""
    lines = ["| API | Requires | Checked for |", "|---|---|---|"]
    for api in TABLE:
        needs = NEEDS[api.name]
        if not needs:
            lines.append(f"| {api.name} | nothing | |")
        for number, need in enumerate(needs):
            lines.append(f"| {'' if number else api.name} | {_requires(need)} | {_scope(need)} |")
    return "\n".join(lines) + "\n"


def _requires(need: Need) -> str:
    if isinstance(need, EachConfig):
        return f"{need.operation.name} on TOPIC, GROUP or CLUSTER"
    operations = need.operations if isinstance(need, Whole | InHandler) else (need.operation,)
    words = " or ".join(operation.name for operation in operations)
    if not isinstance(need, Whole | InHandler):
        instead = need.or_cluster
        also = f", or {instead.name} on CLUSTER" if instead is not None else ""
        return f"{words} on {need.resource.name}{also}"
    return f"{words} on {need.resource.name}"


def _scope(need: Need) -> str:
    if isinstance(need, EachConfig):
        return "each resource"
    if isinstance(need, Whole):
        return need.note or "the request"
    return need.note or "each row"
