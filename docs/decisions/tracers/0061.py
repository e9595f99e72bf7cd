import math
from datetime import datetime

import numpy as np
import pyarrow as pa

from peacefs.dataflow.operators.exact_sums import ExactSums, high_part, low_part
from peacefs.dataflow.operators.keys import key_codes
from peacefs.dataflow.operators.value_order import order_of
from peacefs.dataflow.unit_state.exact_values import decode_value, encode_key, encode_value

keys = pa.array([0.0, -0.0, math.nan, -math.nan, None, None])
assert len(set(key_codes([keys]))) == 3
assert encode_key(-0.0) == encode_key(0.0)

numbers = pa.array([2**62] * 4)
low, high = (part.to_numpy().sum(keepdims=True) for part in (low_part(numbers), high_part(numbers)))
sums = ExactSums(low, high, np.array([4]))
assert sums.means().to_pylist() == [2.0**62]
try:
    sums.sums(pa.int64())
except OverflowError as error:
    assert str(2**64) in str(error)
else:
    raise AssertionError("2^64 is no int64")

assert np.argmax(order_of(pa.array([math.inf, math.nan, -math.inf]))) == 1
kept = {"at": datetime(2026, 1, 1), "seen": {(1, 2)}}
assert decode_value(encode_value(kept)) == kept
