"""What runs apart from the student's Python: kernels, by their text alone, in a worker that executes no cell; and ranks.

A check counts what a kernel costs with simt.count(kernel, ...) or tiles.count(kernel, ...), and runs a function on ranks with
ranks.run(function, ...). In the grader these are Remotes, and it is done here, where nothing of the student's can reach the
counts.
"""

import ast
import functools

from grading.source import holes

DECORATORS = {"simt": "@cuda.jit", "tiles": "@triton.jit"}


def run(session, machine, name, arguments, options):
    """What a kernel of the student's costs, its report as data, or what a function of theirs gives on ranks.

    session: of the student's cells. machine: "simt", "tiles" or "ranks". name: what a cell of theirs defines. arguments: of the
    launch, or of the function; a kernel's arrays are changed as by a launch.
    """
    if machine == "ranks":
        from grading.worker import ranks

        with session.waiting():
            return ranks.run(session, name, arguments, **options)
    text, constants = kernel_text(tuple(session.cells), name, DECORATORS[machine])
    request = machine, text, name, dict(constants), list(arguments), options
    worker = session.apart()
    with session.waiting() as deadline:
        return worker.request("apart", *request, deadline=deadline)


@functools.lru_cache(maxsize=100)  # a check launches its kernel many times
def kernel_text(cells, name, decorator):
    """(text, constants) that a kernel is made of: its own cell, and the kernels and constants of the others, which it may use.

    cells: ((name, text), ...), ours and the student's, in the lab's order. decorator: that kernels have.
    """
    own = next(text for _, text in reversed(cells) if text is not None and name in _functions(text))
    others, constants = {}, {}
    for _, text in cells:
        if text is not None and text is not own:
            others |= {
                function: source
                for function, source in _functions(text).items()
                if source.startswith(decorator)
            }
            constants |= _constants(text)
    defined = {
        node.id
        for node in ast.walk(ast.parse(own))
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    for function in _functions(own):
        others.pop(function, None)
    constants = {
        key: value for key, value in constants.items() if key not in defined | others.keys()
    }
    return "\n\n".join([own, *others.values()]), constants


def _functions(text):
    """{name: source with its decorators} of the functions at the top level of a cell."""
    return {
        node.name: ast.unparse(node)
        for node in holes.statements(text)
        if isinstance(node, ast.FunctionDef)
    }


def _constants(text):
    """{NAME: number or tuple of numbers} that a cell assigns as literals, tl.constexpr(literal) among them."""
    found = {}
    for node in holes.statements(text):
        if (
            isinstance(node, ast.Assign)
            and len(node.targets) == 1
            and isinstance(node.targets[0], ast.Name)
        ):
            wrapped = (
                isinstance(node.value, ast.Call)
                and ast.unparse(node.value.func) == "tl.constexpr"
                and node.value.args
            )
            try:
                value = ast.literal_eval(node.value.args[0] if wrapped else node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if all(
                type(item) in (int, float, bool)
                for item in (value if isinstance(value, tuple) else (value,))
            ):
                found[node.targets[0].id] = value
    return found
