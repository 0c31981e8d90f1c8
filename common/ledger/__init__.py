"""A reader's ledger: guesses, predictions and outcomes, which stay from lab to lab."""

from common.ledger.entries import (
    constant,
    constants,
    counted,
    figure,
    guess,
    main,
    measured,
    merge,
    outcome,
    outcomes,
    predict,
    read,
    show,
    summary,
    table,
    tendencies,
)

__all__ = [
    "constant",
    "constants",
    "counted",
    "figure",
    "guess",
    "main",
    "measured",
    "merge",
    "outcome",
    "outcomes",
    "predict",
    "read",
    "show",
    "summary",
    "table",
    "tendencies",
]
