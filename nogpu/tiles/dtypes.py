"""The dtypes of arrays and kernels: one table of their names, and bf16 numbers as their bits."""

import numpy as np

# In NumPy and PyTorch, in tl, and in the types that Triton writes ("*fp16", "i32").
_TABLE = """
float16        float16     fp16
bfloat16       bfloat16    bf16
float32        float32     fp32
float64        float64     fp64
int8           int8        i8
int16          int16       i16
int32          int32       i32
int64          int64       i64
uint8          uint8       u8
uint16         uint16      u16
uint32         uint32      u32
uint64         uint64      u64
bool           int1        i1
float8_e5m2    float8e5    fp8e5
float8_e4m3fn  float8e4nv  fp8e4nv
"""
_ROWS = [row.split() for row in _TABLE.strip().splitlines()]
TL_NAME = {array: tl for array, tl, _ in _ROWS}
TYPE_NAME = {array: short for array, _, short in _ROWS}
TL_NAMES = frozenset(TL_NAME.values())
BY_ANY_NAME = {name: row[1] for row in _ROWS for name in row}  # any of the three: tl's


def from_bf16(bits: np.ndarray) -> np.ndarray:
    """The float32 numbers that these bf16 bits stand for."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    """The bits of the nearest bf16 numbers; the even one of two equally near, as on a GPU."""
    bits = numbers.astype(np.float32, order="C").view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    quiet_nans = (bits >> np.uint32(16)) | np.uint32(0x40)
    return np.where(np.isnan(numbers), quiet_nans, rounded).astype(np.uint16)
