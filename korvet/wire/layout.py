"""From a message class's annotations to the slots of one version on the wire.

Rules
1. Fields are in wire order in the class, those of its base first; tagged ones may be anywhere.
2. A field is on the wire from `since` to `until`, both included; in other versions it has its
default.
3. A field that is tagged in a version leaves the plain order and joins the tag section.
4. A version is flexible from the message's `flexible` on: compact lengths and a tag section after
every struct.
"""

import types
from typing import Annotated, Any, ClassVar, Union, dataclass_transform, get_args, get_origin

import msgspec

from korvet.wire.primitives import KINDS, Kind


class MessageInfo(msgspec.Struct, frozen=True):
    """The decorator's arguments; `versions` are those that ever existed."""

    name: str
    key: int
    versions: tuple[int, int]
    flexible: int | None
    request: bool

    def is_flexible(self, version: int) -> bool:
        return self.flexible is not None and version >= self.flexible


class _KeywordOnly(msgspec.StructMeta):
    """Makes every subclass keyword-only, so that a required field may follow one with a default."""

    def __new__(
        mcls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **options: Any
    ) -> Any:
        return super().__new__(mcls, name, bases, namespace, kw_only=True, **options)


@dataclass_transform(kw_only_default=True, frozen_default=True, field_specifiers=(msgspec.field,))
class Message(msgspec.Struct, frozen=True, gc=False, metaclass=_KeywordOnly):
    """The base of all messages and of the structs inside them: plain immutable values."""

    __message__: ClassVar[MessageInfo]


class Field(msgspec.Struct, frozen=True):
    """The part that an annotation adds to its type: versions, and the tag of a tagged field."""

    since: int = 0
    until: int | None = None
    nullable_since: int | None = None
    tag: int | None = None


class Slot(msgspec.Struct, frozen=True):
    """A value on the wire, in one version."""

    name: str
    kind: str
    code: str = ""
    nullable: bool = False
    tag: int | None = None
    default: Any = None
    item: "Slot | None" = None
    body: "Layout | None" = None


class Layout(msgspec.Struct, frozen=True):
    """A struct in one version: plain slots in wire order, tagged ones by rising tag."""

    cls: type[Message]
    plain: tuple[Slot, ...]
    tagged: tuple[Slot, ...]
    flexible: bool

    @property
    def least(self) -> int:
        """Return the least bytes of a value of this struct: the bound for an announced count."""
        return sum(_least(slot, self.flexible) for slot in self.plain) + self.flexible


def layout(cls: type[Message], version: int, flexible: bool) -> Layout:
    """Return the slots of `cls` in `version`."""
    slots = [
        slot
        for info in msgspec.structs.fields(cls)
        if (slot := _slot_of(cls, info, version, flexible)) is not None
    ]
    return Layout(
        cls=cls,
        plain=tuple(slot for slot in slots if slot.tag is None),
        tagged=tuple(sorted((s for s in slots if s.tag is not None), key=lambda s: s.tag or 0)),
        flexible=flexible,
    )


def _slot_of(
    cls: type[Message], info: msgspec.structs.FieldInfo, version: int, flexible: bool
) -> Slot | None:
    annotation, field = _unwrap(info.type)
    if version < field.since or (field.until is not None and version > field.until):
        return None
    tag = field.tag
    if tag is not None and not flexible:
        raise TypeError(f"{cls.__name__}.{info.name} is tagged in version {version}, not flexible")
    default = info.default
    if info.default_factory is not msgspec.NODEFAULT:
        default = info.default_factory()
    if tag is not None and default is msgspec.NODEFAULT:
        raise TypeError(f"{cls.__name__}.{info.name} is tagged and has no default")
    slot = _slot(f"{cls.__name__}.{info.name}", info.name, annotation, version, flexible)
    nullable_since = field.since if field.nullable_since is None else field.nullable_since
    return msgspec.structs.replace(
        slot, nullable=slot.nullable and version >= nullable_since, tag=tag, default=default
    )


def _unwrap(annotation: Any) -> tuple[Any, Field]:
    """Return the type without its Field; a Kind is the type and stays."""
    if get_origin(annotation) is Annotated:
        inner, *extras = get_args(annotation)
        fields = [extra for extra in extras if isinstance(extra, Field)]
        kinds = [extra for extra in extras if isinstance(extra, Kind)]
        field = fields[0] if fields else Field()
        return (Annotated[inner, kinds[0]] if kinds else inner), field
    return annotation, Field()


def _slot(where: str, name: str, annotation: Any, version: int, flexible: bool) -> Slot:
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [arm for arm in get_args(annotation) if arm is not type(None)]
        if len(inner) == 1:
            slot = _slot(where, name, inner[0], version, flexible)
            return msgspec.structs.replace(slot, nullable=True)
    kind = KINDS.get(annotation) if get_origin(annotation) is None else None
    if get_origin(annotation) is Annotated:
        kind = next((extra for extra in get_args(annotation) if isinstance(extra, Kind)), None)
    if kind is not None:
        return Slot(name=name, kind=kind.name, code=kind.code)
    if get_origin(annotation) is list:
        item = _slot(where, name, get_args(annotation)[0], version, flexible)
        return Slot(name=name, kind="list", item=item)
    if isinstance(annotation, type) and issubclass(annotation, Message):
        return Slot(name=name, kind="struct", body=layout(annotation, version, flexible))
    raise TypeError(f"{where}: {annotation!r} is no wire type")


_FIXED = {"b": 1, "?": 1, "h": 2, "H": 2, "i": 4, "I": 4, "q": 8, "d": 8, "16s": 16}


def _least(slot: Slot, flexible: bool) -> int:
    if slot.code:
        return _FIXED[slot.code]
    if slot.kind == "struct" and slot.body is not None:
        return 1 if slot.nullable else slot.body.least
    if flexible:
        return 1
    return 2 if slot.kind == "str" else 4


def least(slot: Slot, flexible: bool) -> int:
    """Return the least bytes of a value of this slot, never 0: the bound for a count."""
    return max(1, _least(slot, flexible))
