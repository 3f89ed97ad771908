"""Generate the source of an encoder from a layout: `encode(message) -> list of buffers`.

Rules
1. Small pieces are joined; record batches are passed through, never copied.
2. Adjacent fixed-size fields, and the length that follows them, are written by one `pack`.
3. A field that a version does not have is left out. A value that a version cannot hold (null where
it has no null, a number too wide) raises NotEncodable: a bug that must not reach a client.
"""

import struct
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from korvet.wire.codegen import Source, span
from korvet.wire.layout import Layout, Slot
from korvet.wire.primitives import UVARINT, Fault, NotEncodable, packers

FAULTS = (struct.error, TypeError, ValueError, AttributeError, Fault)


def build_encoder(layout: Layout, label: str) -> Callable[..., Any]:
    """Return a function that encodes a message of this layout, or raises NotEncodable."""
    return _Encoder(layout.flexible).build(layout, label)


def buffers(value: Any) -> Any:
    """Return the buffers of a records field and their total length."""
    if isinstance(value, bytes | bytearray | memoryview):
        return (value,), len(value)
    if isinstance(value, str):
        raise Fault("text where records are due")
    return value, sum(map(len, value))


class _Encoder:
    def __init__(self, flexible: bool) -> None:
        self.flexible = flexible
        self.out = Source()
        self.run: list[tuple[str, str, str]] = []
        self.sink = "w"
        self.out.names.update(
            FAULTS=FAULTS, UVARINT=UVARINT, Fault=Fault, buffers=buffers, join=b"".join
        )

    def build(self, layout: Layout, label: str) -> Callable[..., Any]:
        out = self.out
        out.names["unfit"] = self._unfit
        with out.block("def encode(message):"):
            out.line("parts = []")
            out.line("small = []")
            out.line("w = small.append")
            with out.block("try:"):
                self.struct(layout, "message")
                self.flush()
                with out.block("if small:"):
                    out.line("parts.append(join(small))")
                out.line("return parts")
            with out.block("except FAULTS as error:"):
                out.line("raise unfit(error) from None")
        return out.compile("encode", f"<korvet: encode {label}>")

    def _unfit(self, error: Exception) -> NotEncodable:
        return NotEncodable(f"{self.out.path_of(error)}: {error}")

    # Runs of fixed-size fields.

    def put(self, code: str, value: str = "") -> None:
        """Write `value` with the next flush."""
        self.run.append((code, value, self.out.path))

    def flush(self) -> None:
        run, self.run = self.run, []
        if not run:
            return
        codes = "".join(code for code, _, _ in run)
        values = ", ".join(value for _, value, _ in run if value)
        if not values:
            self.out.line(f"{self.sink}({bytes(len(codes))!r})")
            return
        pack = self.out.constant("pack", struct.Struct(">" + codes).pack, codes)
        with self.out.about(span([path for _, value, path in run if value])):
            self.out.line(f"{self.sink}({pack}({values}))")

    def length(self, classic: str, size: str) -> None:
        """Write a length, -1 for null, and all that was waiting before it."""
        if not self.flexible:
            self.put(classic, size)
            self.flush()
            return
        if self.run:
            run = list(self.run)
            with self.out.block(f"if {size} < 127:"):  # nearly always: one byte, in the same pack
                self.put("B", f"{size} + 1")
                self.flush()
            self.run = run
            with self.out.block("else:"):
                self.flush()
                self.out.line(f"{self.sink}(UVARINT[{size} + 1])")
        else:
            self.out.line(f"{self.sink}(UVARINT[{size} + 1])")

    # One slot, whose value is the expression `value`.

    def slot(self, slot: Slot, owner: str) -> None:
        with self.out.at(slot.name):
            self.value(slot, f"{owner}.{slot.name}")

    def value(self, slot: Slot, value: str) -> None:
        if slot.code:
            self.put(slot.code, f"{value}.bytes" if slot.kind == "uuid" else value)
        elif slot.kind == "struct":
            self.nested(slot, value)
        elif slot.kind == "list":
            self.list_(slot, value)
        else:
            self.sized(slot, value)

    def named(self, value: str) -> str:
        name = self.out.fresh("v")
        self.out.line(f"{name} = {value}")
        return name

    def sized(self, slot: Slot, value: str) -> None:
        """Write a string, bytes or records."""
        out = self.out
        size = out.fresh("n")
        name = self.named(value)
        prepare = {
            "str": (f"{name} = {name}.encode()", f"{size} = len({name})"),
            "bytes": (f"{size} = len({name})",),
            "records": (f"{name}, {size} = buffers({name})",),
        }[slot.kind]
        self.measure(slot, name, size, "()" if slot.kind == "records" else "b''", prepare)
        self.length("h" if slot.kind == "str" else "i", size)
        if slot.kind == "records":
            self.pass_through(name, size)
        else:
            out.line(f"{self.sink}({name})")

    def measure(
        self, slot: Slot, name: str, size: str, nothing: str, lines: tuple[str, ...]
    ) -> None:
        """Write the lines that set `size`. For null it is -1, and `name` becomes `nothing`."""
        if slot.nullable:
            with self.out.block(f"if {name} is None:"):
                self.out.line(f"{name} = {nothing}")
                self.out.line(f"{size} = -1")
        with self.out.block("else:") if slot.nullable else nullcontext():
            for line in lines:
                self.out.line(line)

    def pass_through(self, name: str, size: str) -> None:
        """Close the small piece so far and append the records uncopied."""
        with self.out.block(f"if {size} > 0:"):
            self.out.line("parts.append(join(small))")
            self.out.line("small.clear()")
            self.out.line(f"parts.extend({name})")

    def list_(self, slot: Slot, value: str) -> None:
        out, item = self.out, slot.item
        assert item is not None
        size = out.fresh("n")
        name = self.named(value)
        self.measure(slot, name, size, "()", (f"{size} = len({name})",))
        self.length("i", size)
        if item.code and item.kind != "uuid":
            with out.block(f"if {size} > 0:"):
                packs = out.constant("packs", packers(item.code), item.code)
                out.line(f"{self.sink}({packs}[{size}](*{name}))")
            return
        element = out.fresh("e")
        with out.block(f"for {element} in {name}:"), out.at("[]"):
            self.value(item, element)
            self.flush()

    def nested(self, slot: Slot, value: str) -> None:
        assert slot.body is not None
        name = self.named(value)
        if not slot.nullable:
            self.struct(slot.body, name)
            return
        self.flush()
        with self.out.block(f"if {name} is None:"):
            self.out.line(f"{self.sink}(b'\\xff')")
        with self.out.block("else:"):
            self.put("b", "1")
            self.struct(slot.body, name)
            self.flush()

    def struct(self, layout: Layout, owner: str) -> None:
        for slot in layout.plain:
            self.slot(slot, owner)
        if not layout.flexible:
            return
        if not layout.tagged:
            self.put("x")
            return
        self.flush()
        self.tags(layout, owner)

    def tags(self, layout: Layout, owner: str) -> None:
        """Write the tag section: only fields that differ from their default."""
        out = self.out
        names = [self.named(f"{owner}.{slot.name}") for slot in layout.tagged]
        defaults = [out.constant("default", slot.default) for slot in layout.tagged]
        same = " and ".join(f"{n} is {d}" for n, d in zip(names, defaults, strict=True))
        with out.block(f"if {same}:"):
            out.line(f"{self.sink}(b'\\0')")
        with out.block("else:"):
            pieces, count, outer = out.fresh("held"), out.fresh("n"), self.sink
            out.line(f"{pieces} = []")
            out.line(f"{count} = 0")
            for slot, name, default in zip(layout.tagged, names, defaults, strict=True):
                with out.at(slot.name), out.block(f"if {name} != {default}:"):
                    self.tag(slot, name, pieces, count)
            out.line(f"{outer}(UVARINT[{count}])")
            out.line(f"{outer}(join({pieces}))")

    def tag(self, slot: Slot, name: str, variable: str, count: str) -> None:
        out, outer = self.out, self.sink
        inner = out.fresh("piece")
        self.sink = f"{inner}.append"
        out.line(f"{inner} = []")
        self.value(slot, name)
        self.flush()
        self.sink = outer
        out.line(f"{inner} = join({inner})")
        out.line(f"{variable} += (UVARINT[{slot.tag}], UVARINT[len({inner})], {inner})")
        out.line(f"{count} += 1")
