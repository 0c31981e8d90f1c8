"""A dataflow graph as data: rows (op, inputs) that PyTorch can compute and that can be drawn.

The engine that makes graphs is lab 07's. Its students write
- `Node(op, *inputs, value=None, name=None)`, a class that sets op, inputs, value and name;
- `topological_order(outputs)` and `run(outputs, feeds, evaluate)`;
- `dual(op, *pairs)` for forward mode, `vjp(node, g)` and `gradients(output, inputs)` for reverse.
The rest of the engine is here: the operators on NumPy arrays (`operators`) and the arithmetic of
nodes (`nodes`). `as_rows` and `as_nodes` translate. Code that takes and returns rows works with
every engine, so a student's own engine and the solution's are interchangeable in later labs.

Read rows (what a graph is), operators, nodes, then evaluation (PyTorch's values and gradients, with
which the checks compare), then layout and drawing. trials, counting, backward, tape and text serve
lab 07's drivers, figures, widget and messages.
"""

from common.graphs.backward import Walk, walk
from common.graphs.counting import Counted, counted, operations
from common.graphs.drawing import draw, draw_walk
from common.graphs.evaluation import adjoints, evaluated, gradient, tangent, torch_operator, values
from common.graphs.nodes import Arithmetic, as_nodes, as_rows
from common.graphs.operators import DEAD, FLAT, LINEAR, OPERATORS, evaluate
from common.graphs.rows import LEAVES, Row, ancestors, inputs, operators, random_graph
from common.graphs.tape import torch_tape
from common.graphs.text import formula
from common.graphs.trials import counted_run, order_of, values_of

__all__ = [
    "DEAD",
    "FLAT",
    "LEAVES",
    "LINEAR",
    "OPERATORS",
    "Arithmetic",
    "Counted",
    "Row",
    "Walk",
    "adjoints",
    "ancestors",
    "as_nodes",
    "as_rows",
    "counted",
    "counted_run",
    "draw",
    "draw_walk",
    "evaluate",
    "evaluated",
    "formula",
    "gradient",
    "inputs",
    "operations",
    "operators",
    "order_of",
    "random_graph",
    "tangent",
    "torch_operator",
    "torch_tape",
    "values",
    "values_of",
    "walk",
]
