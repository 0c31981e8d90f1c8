"""Kernels run apart from the student's Python: their text alone, in a worker that executes no cell.

A check counts what a kernel costs with simt.count(kernel, ...) or tiles.count(kernel, ...). In the grader the kernel is a
Remote, and the counting is done here, where nothing of the student's can reach the counters.
"""

import ast

DECORATORS = {"simt": "@cuda.jit", "tiles": "@triton.jit"}


def count(session, machine, name, arguments, options):
    """The report, as data, of a kernel of the student's in common.simt or common.tiles; its arrays are changed as by a launch.

    session: of the student's cells. machine: "simt" or "tiles". name: what the kernel's cell defines.
    """
    if machine == "ranks":
        from grading import ranks
        return ranks.run(session, name, arguments, **options)
    text, constants = kernel_text(session.cells, name, DECORATORS[machine])
    return session.apart().request("apart", machine, text, name, constants, list(arguments), options, deadline=session.deadline)


def kernel_text(cells, name, decorator):
    """(text, constants) that a kernel is made of: its own cell, and the kernels and constants of the others, which it may use.

    cells: [(name, text)], ours and the student's, in the lab's order. decorator: that kernels have.
    """
    own = next(text for _, text in reversed(cells) if text is not None and name in _functions(text))
    others, constants = {}, {}
    for _, text in cells:
        if text is not None and text is not own:
            others |= {function: source for function, source in _functions(text).items() if source.startswith(decorator)}
            constants |= _constants(text)
    defined = {node.id for node in ast.walk(ast.parse(own)) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for function in _functions(own):
        others.pop(function, None)
    constants = {key: value for key, value in constants.items() if key not in defined | others.keys()}
    return "\n\n".join([own, *others.values()]), constants


def _functions(text):
    """{name: source with its decorators} of the functions at the top level of a cell; none where it is not Python."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return {}
    return {node.name: ast.unparse(node) for node in tree.body if isinstance(node, ast.FunctionDef)}


def _constants(text):
    """{NAME: number or tuple of numbers} that a cell assigns as literals, tl.constexpr(literal) among them."""
    found = {}
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return found
    for node in tree.body:
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            wrapped = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) == "tl.constexpr" and node.value.args
            try:
                value = ast.literal_eval(node.value.args[0] if wrapped else node.value)
            except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
                continue
            if all(type(item) in (int, float, bool) for item in (value if isinstance(value, tuple) else (value,))):
                found[node.targets[0].id] = value
    return found
