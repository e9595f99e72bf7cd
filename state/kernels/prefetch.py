"""Prefetch memory before it is needed, like C's `__builtin_prefetch`."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

# For reading, into all cache levels, as data rather than instructions.
_HINTS = (0, 3, 1)


def _prefetch(typing_context: Any, array: Any, index: Any) -> Any:
    """Prefetch an item of an array. Does not wait, and the item need not exist."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        address = builder.gep(data, [arguments[1]])
        pointer = builder.bitcast(address, cgutils.voidptr_t)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, number, number, number])
        insert: Any = cgutils.get_or_insert_function
        asked = insert(builder.module, kind, "llvm.prefetch.p0")
        builder.call(asked, [pointer, *(number(hint) for hint in _HINTS)])
        return context.get_dummy_value()

    return types.void(array, types.int64), generate


#: For kernels: `prefetch(array, index)`.
prefetch: Any = intrinsic(_prefetch)
