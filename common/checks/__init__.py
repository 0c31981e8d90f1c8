"""What checks say: assertions with a message for a learner, and how they reach an answer."""

from common.checks.assertions import (
    SHORT,
    Pictures,
    Remarks,
    WhenWrong,
    agree,
    as_tuple,
    expect,
    is_whole,
    near_miss,
    nearly,
    no_fault,
    open_exercise,
    remark,
    report,
    show,
)
from common.notebook import kernel_text as kernel_text  # the simulators read cells by it

__all__ = [
    "SHORT",
    "Pictures",
    "Remarks",
    "WhenWrong",
    "agree",
    "as_tuple",
    "expect",
    "is_whole",
    "near_miss",
    "nearly",
    "no_fault",
    "open_exercise",
    "remark",
    "report",
    "show",
]
