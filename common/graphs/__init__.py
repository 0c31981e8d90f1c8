"""A dataflow graph as data: a list of rows (op, inputs), computed by PyTorch, and drawn on paper.

Read rows (what a graph is), then evaluation (PyTorch's values and gradients, with which the checks
compare), then layout and drawing.
"""

from common.graphs.drawing import draw
from common.graphs.evaluation import adjoints, evaluated, gradient, tangent, torch_operator, values
from common.graphs.rows import LEAVES, Row, ancestors, inputs, operators, random_graph

__all__ = [
    "LEAVES",
    "Row",
    "adjoints",
    "ancestors",
    "draw",
    "evaluated",
    "gradient",
    "inputs",
    "operators",
    "random_graph",
    "tangent",
    "torch_operator",
    "values",
]
