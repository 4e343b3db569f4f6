"""Memory by address: the few machine operations that the kernel is written in, each a handful of instructions.

numba's arrays would do the same with many times the code to compile (a structure of eleven fields each, counted
references, indices from the end).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_declared: Any = cgutils.get_or_insert_function
_WORD, _BYTE, _WIDE = ir.IntType(64), ir.IntType(8), ir.IntType(128)
_INT = types.int64


def _pointer(builder: Any, base: Any, index: Any = None) -> Any:
    address = base if index is None else builder.add(base, builder.shl(index, ir.Constant(_WORD, 3)))
    return builder.inttoptr(address, _BYTE.as_pointer())


def _load(context: Any, address: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.bitcast(_pointer(builder, arguments[0]), _WORD.as_pointer())
        return builder.load(pointer, align=1, typ=_WORD)

    return _INT(_INT), generate


def _byte(context: Any, address: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.zext(builder.load(_pointer(builder, arguments[0]), typ=_BYTE), _WORD)

    return _INT(_INT), generate


def _word(context: Any, base: Any, index: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.bitcast(_pointer(builder, *arguments), _WORD.as_pointer())
        return builder.load(pointer, align=8, typ=_WORD)

    return _INT(_INT, _INT), generate


def _double(context: Any, base: Any, index: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.bitcast(_pointer(builder, *arguments), ir.DoubleType().as_pointer())
        return builder.load(pointer, align=8, typ=ir.DoubleType())

    return types.float64(_INT, _INT), generate


def _store(context: Any, base: Any, index: Any, value: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = builder.bitcast(_pointer(builder, *arguments[:2]), _WORD.as_pointer())
        builder.store(arguments[2], pointer, align=8)
        return target.get_dummy_value()

    return types.void(_INT, _INT, _INT), generate


def _prefetch(context: Any, address: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [_BYTE.as_pointer(), number, number, number])
        function = _declared(builder.module, kind, "llvm.prefetch.p0")
        read, keep, data = (ir.Constant(number, value) for value in (0, 2, 1))
        builder.call(function, [_pointer(builder, arguments[0]), read, keep, data])
        return target.get_dummy_value()

    return types.void(_INT), generate


def _fold(context: Any, first: Any, second: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        product = builder.mul(builder.zext(arguments[0], _WIDE), builder.zext(arguments[1], _WIDE))
        upper = builder.trunc(builder.lshr(product, ir.Constant(_WIDE, 64)), _WORD)
        return builder.xor(upper, builder.trunc(product, _WORD))

    return _INT(_INT, _INT), generate


def _trailing_zeros(context: Any, word: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.cttz(arguments[0], ir.Constant(ir.IntType(1), 1))

    return _INT(_INT), generate


def _single_bits(context: Any, value: Any) -> Any:
    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        single = builder.fptrunc(arguments[0], ir.FloatType())
        return builder.sext(builder.bitcast(single, ir.IntType(32)), _WORD)

    return _INT(types.float64), generate


if TYPE_CHECKING:

    def load(address: int) -> int:
        """The eight bytes at an address, little-endian, wherever they lie."""

    def byte(address: int) -> int:
        """The byte at an address, 0 to 255."""

    def word(base: int, index: int) -> int:
        """The `index`-th 64-bit integer from an aligned address on."""

    def double(base: int, index: int) -> float:
        """The `index`-th double from an aligned address on."""

    def store(base: int, index: int, value: int) -> None:
        """Set the `index`-th 64-bit integer from an aligned address on."""

    def prefetch(address: int) -> None:
        """Ask for the memory at an address ahead of its use."""

    def fold(first: int, second: int) -> int:
        """The two halves of the unsigned 128-bit product, exclusive-or'd (the mixing step of wyhash)."""

    def trailing_zeros(value: int) -> int:
        """How many low bits of a non-zero integer are 0."""

    def single_bits(value: float) -> int:
        """The bits of a double rounded to float32, as a signed integer."""
else:
    load, byte, word, store = intrinsic(_load), intrinsic(_byte), intrinsic(_word), intrinsic(_store)
    double, prefetch = intrinsic(_double), intrinsic(_prefetch)
    fold, trailing_zeros, single_bits = intrinsic(_fold), intrinsic(_trailing_zeros), intrinsic(_single_bits)
