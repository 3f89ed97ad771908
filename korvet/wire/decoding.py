"""Generate the source of a decoder from a layout: `decode(data, view, pos, limit) -> message`.

Rules
1. Adjacent fixed-size fields, and the length that follows them, are read by one `unpack_from`.
2. Structs and lists are inlined: one function per message and version, no call per element.
3. A slice never fails in Python, so every length is compared with `limit` before it is used; reads
of fixed size fail by themselves at the end of the data.
4. A count is compared with the bytes left, divided by the least size of an element, before any list
is made. All lists and tag sections of a message have at most MAX_ELEMENTS elements together.
5. No text exceeds the classic length limit: what one client writes in a flexible version must be
readable by other clients in any version.
6. Text that is not UTF-8 is decoded as in Java: a group name in Latin-1 works.
"""

import struct
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from korvet.wire.codegen import Source, span
from korvet.wire.layout import Layout, Slot, least
from korvet.wire.primitives import (
    AS_JAVA,
    MAX_ELEMENTS,
    MAX_STRING_BYTES,
    UUIDS,
    Fault,
    MalformedRequest,
    skip_tags,
    unpackers,
    uvarint_tail,
)

FAULTS = (struct.error, IndexError, UnicodeDecodeError, Fault)


def build_decoder(layout: Layout, label: str) -> Callable[..., Any]:
    """Return a function that decodes one message of this layout, or raises MalformedRequest."""
    return _Decoder(layout.flexible).build(layout, label)


class _Decoder:
    def __init__(self, flexible: bool) -> None:
        self.flexible = flexible
        self.out = Source()
        self.run: list[tuple[str, str, str]] = []
        self.loops: list[str] = []
        self.out.names.update(
            Fault=Fault, FAULTS=FAULTS, UUIDS=UUIDS, skip_tags=skip_tags, uvarint_tail=uvarint_tail
        )

    def build(self, layout: Layout, label: str) -> Callable[..., Any]:
        out = self.out
        out.names["malformed"] = self._malformed
        with out.block("def decode(data, view, pos, limit, exact):"):
            out.line("pass")  # becomes the loop indexes, known only at the end
            line = len(out.lines) - 1
            out.line(f"room = {MAX_ELEMENTS}")
            with out.block("try:"):
                value = self.struct(layout)
                with out.block("if exact and pos != limit:"):
                    out.line("raise Fault(f'{limit - pos} bytes after the end of the message')")
                out.line(f"return {value}")
            with out.block("except FAULTS as error:"):
                indexes = "".join(f"{name}, " for name in self.loops)
                out.line(f"raise malformed(error, ({indexes})) from None")
        if self.loops:
            out.lines[line] = "    " + " = ".join(self.loops) + " = 0"
        return out.compile("decode", f"<korvet: decode {label}>")

    def _malformed(self, error: Exception, indexes: tuple[int, ...]) -> MalformedRequest:
        reason = str(error)
        if isinstance(error, struct.error | IndexError):
            reason = "the data ends here"
        elif isinstance(error, UnicodeDecodeError):
            reason = "not UTF-8"
        return MalformedRequest(f"{self.out.path_of(error, indexes)}: {reason}")

    # Runs of fixed-size fields.

    def take(self, code: str, stem: str = "v") -> str:
        """Return the name that will hold the next fixed-size value, once the run is flushed."""
        name = self.out.fresh(stem)
        self.run.append((code, name, self.out.path))
        return name

    def flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        with self.out.about(span([path for _, _, path in run])):
            self.unpack([code for code, _, _ in run], [name for _, name, _ in run])

    def unpack(self, codes: list[str], names: list[str]) -> None:
        if codes == ["B"]:
            self.out.line(f"{names[0]} = data[pos]")
            self.out.line("pos += 1")
            return
        layout = struct.Struct(">" + "".join(codes))
        unpack = self.out.constant("unpack", layout.unpack_from, layout.format)
        comma = "," if len(names) == 1 else ""
        self.out.line(f"{', '.join(names)}{comma} = {unpack}(data, pos)")
        self.out.line(f"pos += {layout.size}")
        for code, name in zip(codes, names, strict=True):
            if code == "16s":
                self.out.line(f"{name} = UUIDS[{name}]")

    def length(self, classic: str) -> str:
        """Return the name of a length just read: -1 is null in both encodings."""
        if not self.flexible:
            name = self.take(classic, "n")
            self.flush()
            return name
        name = self.uvarint()
        self.out.line(f"{name} -= 1")
        return name

    def uvarint(self) -> str:
        name = self.take("B", "n")
        self.flush()
        with self.out.block(f"if {name} > 127:"):
            self.out.line(f"{name}, pos = uvarint_tail(data, pos, {name})")
        return name

    # One slot: leaves its value under the returned name; the run may still hold it.

    def slot(self, slot: Slot) -> str:
        with self.out.at(slot.name):
            return self.value(slot)

    def value(self, slot: Slot) -> str:
        if slot.code:
            return self.take(slot.code)
        if slot.kind == "struct":
            return self.nested(slot)
        if slot.kind == "list":
            return self.list_(slot)
        return self.sized(slot)

    def sized(self, slot: Slot) -> str:
        """Read a string, bytes or records."""
        out = self.out
        size = self.length("h" if slot.kind == "str" else "i")
        name, end = out.fresh("v"), out.fresh("e")
        read = {
            "str": f"str(data[pos:{end}], 'utf-8', '{AS_JAVA}')",
            "bytes": f"bytes(view[pos:{end}])",
            "records": f"view[pos:{end}]",
        }[slot.kind]
        with self.unless_null(slot, size, name):
            out.line(f"{end} = pos + {size}")
            with out.block(f"if not pos <= {end} <= limit:"):
                out.line(
                    f"raise Fault(f'a length of {{{size}}} where {{limit - pos}} bytes are left')"
                )
            if slot.kind == "str" and self.flexible:
                with out.block(f"if {size} > {MAX_STRING_BYTES}:"):
                    out.line(f"raise Fault(f'a text of {{{size}}} bytes')")
            out.line(f"{name} = {read}")
            out.line(f"pos = {end}")
        return name

    def unless_null(self, slot: Slot, size: str, name: str) -> AbstractContextManager[None]:
        if not slot.nullable:
            return nullcontext()
        with self.out.block(f"if {size} == -1:"):
            self.out.line(f"{name} = None")
        return self.out.block("else:")

    def list_(self, slot: Slot) -> str:
        out, item = self.out, slot.item
        assert item is not None
        count = self.length("i")
        name = out.fresh("v")
        with self.unless_null(slot, count, name):
            size = least(item, self.flexible)
            with out.block(f"if not 0 <= {count} * {size} <= limit - pos:"):
                out.line(
                    f"raise Fault(f'a count of {{{count}}} where {{limit - pos}} bytes are left')"
                )
            self.spend(count)
            if item.code and item.kind != "uuid":
                unpacks = out.constant("unpacks", unpackers(item.code), item.code)
                out.line(f"{name} = list({unpacks}[{count}](data, pos))")
                out.line(f"pos += {count} * {size}")
            else:
                self.items(item, name, count)
        return name

    def spend(self, count: str) -> None:
        """Count that many more elements of the message, or refuse it."""
        self.out.line(f"room -= {count}")
        with self.out.block("if room < 0:"):
            self.out.line("raise Fault('more elements than any request has')")

    def items(self, item: Slot, name: str, count: str) -> None:
        out = self.out
        index = f"i{len(self.loops)}"
        position = len(self.loops)
        self.loops.append(index)
        add = out.fresh("add")
        out.line(f"{name} = []")
        out.line(f"{add} = {name}.append")
        with out.block(f"for {index} in range({count}):"), out.at(f"[{{{position}}}]"):
            element = self.value(item)
            self.flush()
            out.line(f"{add}({element})")

    def nested(self, slot: Slot) -> str:
        assert slot.body is not None
        if not slot.nullable:
            return self.struct(slot.body)
        name = self.out.fresh("v")
        mark = self.take("b", "n")
        self.flush()
        with self.out.block(f"if {mark} < 0:"):
            self.out.line(f"{name} = None")
        with self.out.block("else:"):
            self.out.line(f"{name} = {self.struct(slot.body)}")
        return name

    def struct(self, layout: Layout) -> str:
        """Read a struct and flush the run."""
        out = self.out
        values = [(slot.name, self.slot(slot)) for slot in layout.plain]
        if layout.flexible:
            values += self.tags(layout)
        self.flush()
        cls = out.constant("cls", layout.cls, layout.cls)
        name = out.fresh("v")
        out.line(f"{name} = {cls}({', '.join(f'{field}={value}' for field, value in values)})")
        return name

    def tags(self, layout: Layout) -> list[tuple[str, str]]:
        out = self.out
        count = self.take("B", "n")
        self.flush()
        names = []
        for slot in layout.tagged:
            names.append(out.fresh("v"))
            out.line(f"{names[-1]} = {self.default(slot)}")
        with out.block(f"if {count}:"):
            with out.block(f"if {count} > 127:"):
                out.line(f"{count}, pos = uvarint_tail(data, pos, {count})")
            self.spend(count)
            if not layout.tagged:
                out.line(f"pos = skip_tags(data, pos, limit, {count})")
                return []
            with out.block(f"for _ in range({count}):"):
                self.tag(layout.tagged, names)
        return [(slot.name, name) for slot, name in zip(layout.tagged, names, strict=True)]

    def tag(self, slots: tuple[Slot, ...], names: list[str]) -> None:
        out = self.out
        tag, size, end = self.uvarint(), self.uvarint(), out.fresh("e")
        out.line(f"{end} = pos + {size}")
        with out.block(f"if {end} > limit:"):
            out.line(f"raise Fault(f'tagged field {{{tag}}} claims {{{size}}} bytes')")
        word = "if"
        for slot, name in zip(slots, names, strict=True):
            with out.block(f"{word} {tag} == {slot.tag}:"), out.at(slot.name):
                value = self.value(slot)
                self.flush()
                out.line(f"{name} = {value}")
                with out.block(f"if pos != {end}:"):
                    out.line(f"raise Fault('its tag announced {{}} bytes'.format({size}))")
            word = "elif"
        with out.block("else:"):
            out.line(f"pos = {end}")

    def default(self, slot: Slot) -> str:
        if slot.default == [] and isinstance(slot.default, list):
            return "[]"
        return self.out.constant("default", slot.default)
