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
lab 07's drivers, figures, widget and messages. `programs` adds what lab 08 compiles: buffers and
random numbers, a run whose every bit can be compared, and random programs (`random_programs`).
"""

from common.graphs.backward import Walk, walk
from common.graphs.counting import Counted, counted, operations
from common.graphs.drawing import draw, draw_walk
from common.graphs.evaluation import adjoints, evaluated, gradient, tangent, torch_operator, values
from common.graphs.nodes import Arithmetic, as_nodes, as_rows
from common.graphs.operators import (
    BATCH_NORM_EPSILON,
    DEAD,
    FLAT,
    LINEAR,
    OPERATORS,
    evaluate,
)
from common.graphs.programs import (
    COMMUTATIVE,
    EFFECTS,
    ELEMENTWISE,
    Feeds,
    Program,
    chosen,
    execute,
    names,
    same_bits,
    valid,
    without,
)
from common.graphs.random_programs import random_feeds, random_program
from common.graphs.rows import LEAVES, Row, ancestors, inputs, operators, random_graph
from common.graphs.tape import torch_tape
from common.graphs.text import formula
from common.graphs.tracing import Tape, Traced
from common.graphs.trials import counted_run, order_of, values_of, walked

__all__ = [
    "BATCH_NORM_EPSILON",
    "COMMUTATIVE",
    "DEAD",
    "EFFECTS",
    "ELEMENTWISE",
    "FLAT",
    "LEAVES",
    "LINEAR",
    "OPERATORS",
    "Arithmetic",
    "Counted",
    "Feeds",
    "Program",
    "Row",
    "Tape",
    "Traced",
    "Walk",
    "adjoints",
    "ancestors",
    "as_nodes",
    "as_rows",
    "chosen",
    "counted",
    "counted_run",
    "draw",
    "draw_walk",
    "evaluate",
    "evaluated",
    "execute",
    "formula",
    "gradient",
    "inputs",
    "names",
    "operations",
    "operators",
    "order_of",
    "random_feeds",
    "random_graph",
    "random_program",
    "same_bits",
    "tangent",
    "torch_operator",
    "torch_tape",
    "valid",
    "values",
    "values_of",
    "walk",
    "walked",
    "without",
]
