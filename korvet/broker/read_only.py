"""Refuse writes on a read-only broker (`korvet serve --from`).

POLICY_VIOLATION, because clients do not retry it, and because it is no authorization error: no ACL
rule would permit the request. InitProducerId is answered: an idempotent producer would otherwise
retry that without end, and report no error for its records.
"""

from collections.abc import Awaitable
from typing import Any

import msgspec

from korvet.apis import Api
from korvet.base.deferred import CloseWithoutResponse
from korvet.base.errors import ErrorCode
from korvet.broker.error_responses import has_response, refused
from korvet.wire.schema import Message

REFUSED = frozenset(
    {
        "Produce",
        "CreateTopics",
        "DeleteTopics",
        "DeleteRecords",
        "CreatePartitions",
        "AddPartitionsToTxn",
        "AddOffsetsToTxn",
        "EndTxn",
        "TxnOffsetCommit",
        "WriteTxnMarkers",
        "AlterConfigs",
        "IncrementalAlterConfigs",
        "AlterClientQuotas",
        "CreateAcls",
        "DeleteAcls",
        "AlterUserScramCredentials",
        "UpdateFeatures",
    }
)
"""APIs that change more than groups and their offsets."""
SENTENCE = "This broker is read-only: it serves a remote store (korvet serve --from)."


class ReadOnly:
    """Answers the requests that would write."""

    def __bool__(self) -> bool:
        return True

    def response(self, api: Api, request: Any) -> Awaitable[Message | None] | None:
        """Return the refusal of a request that writes, None for any other."""
        return _refuse(api, request) if api.name in REFUSED else None


async def _refuse(api: Api, request: Any) -> Message | None:
    if not has_response(request):
        raise CloseWithoutResponse(SENTENCE)
    response: Message = _explained(refused(api, request, ErrorCode.POLICY_VIOLATION))
    return response


def _explained(item: Any) -> Any:
    """Return the response, or an item of it, with the reason next to its errors."""
    if isinstance(item, list):
        return [_explained(each) for each in item]
    if not isinstance(item, msgspec.Struct):
        return item
    fields = {name: _explained(getattr(item, name)) for name in item.__struct_fields__}
    if fields.get("error_code") and "error_message" in fields:
        fields["error_message"] = SENTENCE
    return msgspec.structs.replace(item, **fields)
