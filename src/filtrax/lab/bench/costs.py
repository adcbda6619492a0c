"""Operations, bytes and launches of a compiled program, loops included.

XLA's own `cost_analysis` counts the body of a loop once, whatever its trip count, so this module
parses the text of the compiled program (HLO). It counts

- operations: one per element of elementwise instructions, two per multiply-add of products and
  convolutions, and those of factorizations and triangular solves;
- bytes: arguments, results, and what loops read from and write into arrays that outlive a step.
  These must pass through memory even if everything else stayed on the chip;
- launches: instructions that run as a kernel of their own on the device.
"""

import dataclasses
import math
import re
from collections.abc import Callable
from typing import Any

_COMPUTATION = re.compile(r"^(ENTRY )?%?([\w.\-]+) (?:\(.*)?\{\s*$")
_INSTRUCTION = re.compile(r"^\s*(ROOT )?%?([\w.\-]+) = (.*?) ([a-z][\w\-]*)\((.*)$")
_ARRAY = re.compile(r"\b([a-z]\w*)\[([\d,]*)\]")
_OPERAND = re.compile(r"%([\w.\-]+)")
_CALLED = re.compile(r"\b(?:calls|to_apply|body)=%?([\w.\-]+)")
_CONDITION = re.compile(r"\bcondition=%?([\w.\-]+)")
_BRANCHES = re.compile(
    r"\b(?:branch_computations=\{(.*?)\}|(?:true|false)_computation=%?([\w.\-]+))"
)
_CONTRACTED = re.compile(r'lhs_contracting_dim(?:s=\{|ensions":\[)([\d,"]*)')
_NUMBER = re.compile(r"\d+")
_TRIPS = re.compile(r'"known_trip_count":\{"n":"(\d+)"\}')
_BITS = {"pred": 8, "bf16": 16, "token": 0}

_FREE = {
    *("parameter", "constant", "tuple", "get-tuple-element", "bitcast", "after-all", "iota"),
    *("opt-barrier", "partition-id", "replica-id", "get-dimension-size", "domain"),
}
"""Instructions without cost at run time."""

_MOVES = {
    *("copy", "broadcast", "reshape", "transpose", "slice", "concatenate", "pad", "reverse"),
    *("dynamic-slice", "dynamic-update-slice", "gather", "scatter", "bitcast-convert"),
    *("copy-start", "copy-done", "all-gather", "all-to-all", "send", "recv"),
}
"""Instructions that move data without arithmetic."""


@dataclasses.dataclass(frozen=True)
class Costs:
    """The costs of one call of a program."""

    operations: float | int = 0
    bytes: float | int = 0
    launches: float | int = 0

    def __add__(self, other: "Costs") -> "Costs":
        return Costs(
            self.operations + other.operations,
            self.bytes + other.bytes,
            self.launches + other.launches,
        )

    def times(self, count: float | int) -> "Costs":
        """Returns the costs of `count` calls."""
        return Costs(self.operations * count, self.bytes * count, self.launches * count)


@dataclasses.dataclass(frozen=True)
class _Shape:
    sizes: tuple[int, ...]
    bits: int

    @property
    def elements(self) -> int:
        return math.prod(self.sizes)

    @property
    def bytes(self) -> float:
        return self.elements * self.bits / 8


@dataclasses.dataclass(frozen=True)
class _Instruction:
    name: str
    shapes: tuple[_Shape, ...]
    opcode: str
    operands: tuple[str, ...]
    text: str
    is_root: bool

    @property
    def elements(self) -> int:
        return sum(shape.elements for shape in self.shapes)

    @property
    def bytes(self) -> float | int:
        return sum(shape.bytes for shape in self.shapes)


Computation = dict[str, _Instruction]


def program_costs(program: Any) -> Costs:
    """Counts the costs of a compiled JAX program."""
    return text_costs(program.as_text())


def text_costs(text: str) -> Costs:
    """Counts the costs of a compiled program from its HLO text."""
    computations, entry = _parse(text)
    main = computations[entry]
    passed = sum(one.bytes for one in main.values() if one.opcode == "parameter" or one.is_root)
    return _Counter(computations).of(entry) + Costs(bytes=passed)


def _parse(text: str) -> tuple[dict[str, Computation], str]:
    computations: dict[str, Computation] = {}
    current, entry = None, ""
    for line in text.splitlines():
        begins = _COMPUTATION.match(line) if current is None else None
        if begins:
            current = computations.setdefault(begins[2], {})
            entry = begins[2] if begins[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _INSTRUCTION.match(line)):
            one = _instruction(found)
            current[one.name] = one
    return computations, entry


def _instruction(found: re.Match) -> _Instruction:
    root, name, shape, opcode, rest = found.groups()
    operands = rest.partition("), ")[0]
    return _Instruction(
        name, _shapes(shape), opcode, tuple(_OPERAND.findall(operands)), rest, bool(root)
    )


def _shapes(text: str) -> tuple[_Shape, ...]:
    found = []
    for kind, sizes in _ARRAY.findall(text):
        digits = re.search(r"\d+$", kind)
        bits = _BITS.get(kind, int(digits[0]) if digits else 32)
        found.append(_Shape(tuple(int(size) for size in sizes.split(",") if size), bits))
    return tuple(found)


class _Counter:
    """Adds up the costs of computations in the way in which they are called."""

    def __init__(self, computations: dict[str, Computation]):
        self.computations = computations

    def of(self, name: str, *, looped: bool = False, fused: bool = False) -> Costs:
        computation = self.computations[name]
        total = Costs()
        for one in computation.values():
            total += self._executed(one, computation, looped, fused)
        return total

    def _executed(
        self, one: _Instruction, computation: Computation, looped: bool, fused: bool
    ) -> Costs:
        if one.opcode in _FREE:
            return Costs()
        if one.opcode == "while":
            return self._loop(one)
        if one.opcode == "conditional":
            return self._conditional(one, looped)
        called = _CALLED.search(one.text)
        if called and one.opcode in ("call", "async-start"):
            return self.of(called[1], looped=looped, fused=fused)
        own = Costs(launches=0 if fused else 1)
        if called and one.opcode == "fusion":
            return own + self.of(called[1], looped=looped, fused=True)
        moved = _moved(one, computation) if looped or _is_loop(one) else 0.0
        return own + Costs(_operations(one, computation), moved)

    def _loop(self, one: _Instruction) -> Costs:
        body, condition = _CALLED.search(one.text), _CONDITION.search(one.text)
        assert body is not None
        assert condition is not None
        trips = _TRIPS.search(one.text)
        each = self.of(body[1], looped=True) + self.of(condition[1], looped=True)
        return each.times(int(trips[1]) if trips else 1)

    def _conditional(self, one: _Instruction, looped: bool) -> Costs:
        names = [
            name.strip().lstrip("%")
            for found in _BRANCHES.findall(one.text)
            for name in ",".join(found).split(",")
            if name.strip()
        ]
        branches = [self.of(name, looped=looped) for name in names]
        return max(branches, key=lambda costs: costs.launches, default=Costs())


def _moved(one: _Instruction, computation: Computation) -> float | int:
    """Counts the bytes that one step of a loop reads from or writes to arrays that outlive it.

    A loop compiled into one kernel reads its operands and writes its results.
    """
    if _is_loop(one):
        operands = (computation[name].bytes for name in one.operands if name in computation)
        return one.bytes + sum(operands)
    if one.opcode == "dynamic-slice":
        return one.bytes
    if one.opcode == "dynamic-update-slice":
        return computation[one.operands[1]].bytes
    return 0.0


def _is_loop(one: _Instruction) -> bool:
    return one.opcode == "custom-call" and "/filtrax_loop/" in one.text


def _operations(one: _Instruction, computation: Computation) -> float:
    if one.opcode in _MOVES:
        return 0.0
    count = _SPECIAL.get(one.opcode)
    return float(one.elements) if count is None else count(one, computation)


def _operand(one: _Instruction, number: int, computation: Computation) -> _Shape | None:
    known = computation.get(one.operands[number]) if number < len(one.operands) else None
    return known.shapes[0] if known is not None and known.shapes else None


def _dot(one: _Instruction, computation: Computation) -> float:
    """Counts a matrix product; library calls quote their axes and return a workspace as well."""
    left, result = _operand(one, 0, computation), one.shapes[0].elements
    contracted = _CONTRACTED.search(one.text)
    if left is None or contracted is None:
        return 2.0 * result
    return (
        2.0 * result * math.prod(left.sizes[int(axis)] for axis in _NUMBER.findall(contracted[1]))
    )


def _convolution(one: _Instruction, computation: Computation) -> float:
    kernel = _operand(one, 1, computation)
    labels = re.search(r"dim_labels=\w+_(\w+)->", one.text)
    if kernel is None or labels is None:
        return 2.0 * one.elements
    outputs = kernel.sizes[labels[1].index("o")]
    return 2.0 * one.elements * kernel.elements / outputs


def _reduce(one: _Instruction, computation: Computation) -> float:
    source = _operand(one, 0, computation)
    return float(one.elements if source is None else source.elements)


def _sort(one: _Instruction, computation: Computation) -> float:
    del computation
    longest = max((max(shape.sizes, default=1) for shape in one.shapes), default=1)
    return one.shapes[0].elements * math.log2(max(longest, 2))


def _library(one: _Instruction, computation: Computation) -> float:
    """Counts a library call: a factorization, triangular solve, product or convolution."""
    left, right = _operand(one, 0, computation), _operand(one, 1, computation)
    if left is None or len(left.sizes) < 2:
        return 0.0
    target = re.search(r'custom_call_target="(.*?)"', one.text)
    name = (target[1] if target else "").lower()
    size, count = left.sizes[-1], math.prod(left.sizes[:-2])
    if "potrf" in name or "cholesky" in name:
        return count * size**3 / 3
    if right is None or len(right.sizes) < 2:
        return 0.0
    if "trsm" in name or "triangular" in name:
        return float(size * right.elements)
    if any(word in name for word in ("gemm", "matmul", "dot")):
        return _dot(one, computation)
    if "conv" in name:
        return 2.0 * one.shapes[0].elements * right.elements / max(right.sizes)
    return 0.0


_SPECIAL: dict[str, Callable[[_Instruction, Computation], float]] = {
    "dot": _dot,
    "convolution": _convolution,
    "reduce": _reduce,
    "reduce-window": _reduce,
    "sort": _sort,
    "custom-call": _library,
    "cholesky": lambda one, _: one.elements * one.shapes[0].sizes[-1] / 3,
    "triangular-solve": lambda one, _: float(one.elements * one.shapes[0].sizes[-2]),
    "rng-bit-generator": lambda one, _: 10.0 * one.elements,
}
