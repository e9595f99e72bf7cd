"""Convert one column of fixed width between Arrow, NumPy or Python and the items of a record."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from peacefs.protocol.errors import RecordRefused

Items = NDArray[Any]

_PLAIN: Final = {
    pa.int8(): "i1",
    pa.int16(): "i2",
    pa.int32(): "i4",
    pa.int64(): "i8",
    pa.uint8(): "u1",
    pa.uint16(): "u2",
    pa.uint32(): "u4",
    pa.uint64(): "u8",
    pa.float32(): "f4",
    pa.float64(): "f8",
    pa.bool_(): "?",
}


class Column:
    """A column of fixed width. `type` is the Arrow type, `dtype` the type of stored items.

    Temporal types are stored as integers (`integral`), booleans and numbers as they are, others as bytes.
    """

    def __init__(self, field: pa.Field) -> None:
        self.name: str = field.name
        self.type: pa.DataType = field.type
        self.integral = self._integral()
        code = _PLAIN.get(self.type if self.integral is None else self.integral)
        if code is not None:
            self.dtype = np.dtype(code)
        elif pa.types.is_fixed_size_binary(self.type) or pa.types.is_decimal(self.type):
            self.dtype = np.dtype(("V", self.type.bit_width // 8))
        else:
            raise RecordRefused(f"column {self.name} is of type {self.type}, which has no fixed width")
        self.plain = self.type in _PLAIN

    @property
    def numeric(self) -> bool:
        """Whether sums, minima and maxima can be computed in it."""
        return self.dtype.kind in "iuf"

    def _integral(self) -> pa.DataType | None:
        """Return the integer type that stores a temporal type; None for other types."""
        if pa.types.is_temporal(self.type):
            return {32: pa.int32(), 64: pa.int64()}.get(self.type.bit_width)
        return None

    # -- many --------------------------------------------------------------------------------------

    def items_of(self, given: Any) -> Items:
        """Return an array of items, copied only if needed. Raises RecordRefused."""
        if isinstance(given, np.ndarray):
            return self._from_numpy(given)
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if not isinstance(given, pa.Array):
            return self._from_python(given)
        return self._from_arrow(given)

    def _from_numpy(self, given: Items) -> Items:
        if given.ndim != 1:
            raise RecordRefused(f"column {self.name} was given an array of {given.ndim} dimensions: one is needed")
        if given.dtype == self.dtype:
            return np.ascontiguousarray(given)
        if self.plain and np.can_cast(given.dtype, self.dtype, "safe"):
            return given.astype(self.dtype)
        if given.dtype.kind in "mMOSUV":
            return self._from_python(given)
        raise RecordRefused(f"column {self.name} is of type {self.type} and was given {given.dtype}")

    def _from_python(self, given: Any) -> Items:
        # Arrow drops the fraction of a Python number silently.
        if self.dtype.kind in "iu" and any(isinstance(each, float) and not each.is_integer() for each in given):
            raise RecordRefused(
                f"column {self.name} is of type {self.type} and was given a number with a fraction"
            )
        try:
            return self._from_arrow(pa.array(given, self.type))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError) as error:
            said = str(error).splitlines()[0]
            raise RecordRefused(f"column {self.name} is of type {self.type}: {said}") from None

    def _from_arrow(self, given: pa.Array) -> Items:
        if isinstance(given, pa.DictionaryArray):
            given = given.dictionary_decode()
        if given.null_count:
            raise RecordRefused(f"column {self.name} was given {given.null_count} nulls, which are not stored")
        if given.type != self.type:
            try:
                given = given.cast(self.type)
            except pa.ArrowInvalid as error:
                raise RecordRefused(f"column {self.name} is of type {self.type}: {error}") from None
            except pa.ArrowNotImplementedError:
                raise RecordRefused(
                    f"column {self.name} is of type {self.type} and was given {given.type}"
                ) from None
        if self.dtype.kind == "b":
            return np.asarray(pc.cast(given, pa.uint8())).view(np.bool_)
        if not len(given):
            return np.empty(0, self.dtype)
        width = self.dtype.itemsize
        return np.frombuffer(given.buffers()[1], self.dtype, len(given), given.offset * width)

    def arrow_of(self, items: Items) -> pa.Array:
        """Return items as an Arrow array of the column's type. Shares memory if possible."""
        if self.dtype.kind == "b":
            return pa.array(items)
        packed = np.ascontiguousarray(items)
        return pa.Array.from_buffers(self.type, len(packed), [None, pa.py_buffer(packed)])

    # -- one ---------------------------------------------------------------------------------------

    def bytes_of(self, value: Any) -> bytes:
        """Return one value in its stored form. Raises RecordRefused."""
        if value is None:
            raise RecordRefused(f"column {self.name} was given None, and nulls are not stored")
        return self._from_python([value]).tobytes()

    def value_of(self, stored: bytes) -> Any:
        """Return an item as a Python value."""
        if self.plain:
            return np.frombuffer(stored, self.dtype)[0].item()
        return pa.Array.from_buffers(self.type, 1, [None, pa.py_buffer(stored)])[0].as_py()
