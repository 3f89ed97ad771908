"""The kinds of needs: of a whole request, of each row of a list, or checked by the handler."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from korvet.admin.config_edits import ConfigResourceType
from korvet.base.errors import ErrorCode
from korvet.security.acl import CLUSTER_NAME, Operation, ResourceType

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID

ERROR_OF = {
    TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


def _always(_: Any) -> bool:
    return True


class Whole(msgspec.Struct, frozen=True):
    """A need of the whole request; `field` names the resource, empty for the cluster.

    If the field is a list, the need holds for each of its names. `top_only`: the response of a
    denied request has the error at its top and no rows.
    """

    resource: ResourceType
    operations: tuple[Operation, ...]
    field: str = ""
    top_only: bool = False
    when: Callable[[Any], bool] = _always
    note: str = ""
    on_any_topic: bool = False
    """Whether WRITE on any topic suffices too."""
    repeated: Callable[[Any], Any] = lambda request: request
    """Returns the request of whose rows a denied response has one each."""

    @property
    def error(self) -> ErrorCode:
        return ERROR_OF[self.resource]

    def names(self, request: Any) -> Sequence[str]:
        """Return the names of the resources."""
        if not self.field:
            return (CLUSTER_NAME,)
        value = getattr(request, self.field)
        if isinstance(value, str):
            return (value,)
        return value or ()


class EachRow(msgspec.Struct, frozen=True):
    """A need of each row of the list `field`."""

    field: str
    resource: ResourceType
    operation: Operation
    or_cluster: Callable[[Any], Operation | None] = lambda request: None
    """The operation on the cluster that suffices too, or None."""
    note: str = ""


class EachConfig(msgspec.Struct, frozen=True):
    """A need of each row of `resources`, whose type of resource says on what."""

    operation: Operation
    field: str = "resources"

    def resource_of(self, row: Any) -> tuple[ResourceType, str]:
        """Return type and name of the resource that a row's configs belong to."""
        if row.resource_type == ConfigResourceType.TOPIC:
            return TOPIC, row.resource_name
        if row.resource_type == ConfigResourceType.GROUP:
            return GROUP, row.resource_name
        return CLUSTER, CLUSTER_NAME


class InHandler(msgspec.Struct, frozen=True):
    """A need that the handler checks, in words."""

    resource: ResourceType
    operations: tuple[Operation, ...]
    note: str


Need = Whole | EachRow | EachConfig | InHandler
