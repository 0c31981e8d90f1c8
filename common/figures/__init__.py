"""The figures of the course: charts in one style, and drawings of memory."""

from common.figures.charts import (
    MARKS,
    averages,
    ladder,
    predicted_and_measured,
    roofline,
    scale,
    use_style,
)
from nogpu.pictures import DESCRIPTIONS, QUIET, describe, ink

__all__ = [
    "DESCRIPTIONS",
    "MARKS",
    "QUIET",
    "averages",
    "describe",
    "ink",
    "ladder",
    "predicted_and_measured",
    "roofline",
    "scale",
    "use_style",
]
