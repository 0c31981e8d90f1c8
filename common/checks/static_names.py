"""Which names a student's function uses, read from the text of its cells: nothing is executed.

A student's process could say anything about itself. So the grader reads the text that it has; a
notebook reads the cells that Python remembers, by the same rules.
"""

import ast
import functools
import inspect
import linecache
import operator
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from common.checks import expect
from common.checks.grader_link import ReadRemotely
from common.notebook import slices

# Kinds of what is used that is no name: `import pkgutil`, `private _utils`.
IMPORT, PRIVATE = "import ", "private "
FORMAT, COMPILE = "str.format", "compile()"  # with attributes in its text; the builtin function
# Ways from a function to whoever calls it.
FRAMES = frozenset(
    {
        *("_getframe", "_current_frames", "currentframe", "f_back", "f_locals", "f_globals"),
        *("f_builtins", "tb_frame", "tb_next", "gi_frame", "cr_frame", "ag_frame", "walk_stack"),
        *("walk_tb", "extract_stack", "StackSummary", "TracebackException", "getframeinfo"),
        *("getouterframes", "getinnerframes", "settrace", "setprofile", "get_objects"),
        *("get_referrers", "get_referents", "addaudithook", "monitoring"),
    }
)
# Ways to a name that no text shows.
BY_TEXT = FRAMES | {
    *("getattr", "getattr_static", "__getattribute__", "__getattr__", "__dict__", "vars"),
    *("globals", "locals", "eval", "exec", "modules", "__import__", "import_module", "mock"),
    *("__builtins__", "builtins", "attrgetter", "methodcaller", "getmembers", "resolve_name"),
    *("get_field", "Formatter", "__reduce__", "__reduce_ex__", "__getstate__", "importorskip"),
    *("__subclasses__", "_import_dotted_name", "get_type_hints", "ForwardRef"),
    *("CompilationUnit", "call_method", "call_function", "loadTestsFromName"),
    *("importlib", "pkgutil", "pydoc", "runpy", "pickle", "ctypes", FORMAT, COMPILE),
    *(IMPORT, PRIVATE),
}
# Ways into an object, past its methods.
INSIDE = BY_TEXT | {
    *("__self__", "__func__", "__closure__", "cell_contents", "__globals__", "__code__", "dir"),
    *("__wrapped__", "__defaults__", "__kwdefaults__", "__traceback__", "f_code", "gi_code"),
    *("cr_code", "ag_code", "co_code", "co_consts", "co_names", "co_varnames", "gc", "inspect"),
    *("getsource", "getsourcelines", "findsource", "getclosurevars", "linecache", "traceback"),
    *("dis",),
}
# Modules that find nothing by a text, but by the names above.
ALLOWED = {
    *(
        "__future__",
        "abc",
        "bisect",
        "cmath",
        "collections",
        "common",
        "contextlib",
        "copy",
        "nogpu",
    ),
    *("dataclasses", "datetime", "decimal", "enum", "fractions", "functools", "graphlib"),
    *("heapq", "itertools", "math", "matplotlib", "numbers", "numba", "numpy", "operator"),
    *("pytest", "random", "re", "statistics", "string", "sys", "time", "torch", "triton"),
    *("typing", "unittest", "warnings"),
}
DUNDER = re.compile(r"__\w+__")
ORDINARY = {  # names with two underscores that programs have a use for
    *(n for kind in (operator, int, float, str, list, dict, set, range) for n in dir(kind)),
    *("__annotations__", "__cause__", "__class__", "__copy__", "__deepcopy__", "__enter__"),
    *("__exit__", "__main__", "__match_args__", "__missing__", "__post_init__", "__qualname__"),
    *("__slots__", "__torch_dispatch__", "__torch_function__"),
} - INSIDE.union({"__cached__", "__dir__", "__getnewargs__", "__loader__", "__spec__"})
FOREACH = "_foreach_"  # what PyTorch's optimizers call: private, and useful

HIDDEN = "."  # stands for what statements put into the attributes of objects; it is no name
EXECUTED = "()"  # stands for what statements call when their cell is executed
SETTERS = {"setattr", "__setattr__", "__dict__", "vars", "modules"}
PLAIN = {"object", "tuple", "list", "dict", "set"}  # bases of classes that add no attribute of note
ORIGINS = {  # what makes classes with the attributes that it is told, and where it comes from
    "NamedTuple": {"typing", "NamedTuple"},
    "dataclass": {"dataclasses", "dataclass"},
    "namedtuple": {"collections", "namedtuple"},
}
Statements = Mapping[str, Sequence[slices.Statement]]


def names_in(function: Callable[..., Any] | ReadRemotely, of: Collection[str]) -> list[str]:
    """Which of these names a function uses, itself or in what it calls of its own notebook.

    of: names, and kinds of what is no name, such as IMPORT.
    """
    if isinstance(function, ReadRemotely):
        return sorted(function.names_used(of))
    return sorted(chosen(_used_here(function), of))


def looks_inside(function: Callable[..., Any] | ReadRemotely) -> list[str]:
    """The names with which a function looks into an object that it was given, past its methods."""
    return names_in(function, INSIDE)


def expect_none(
    name: str, function: Callable[..., Any] | ReadRemotely, of: Collection[str], instead: str
) -> None:
    """Raise AssertionError if a function uses one of these names, or finds names by a text.

    name: of the function. instead: what to do, as a sentence.
    """
    shown = names_in(function, {*of, *BY_TEXT})
    expect(not shown, f"{name} uses what is not allowed here ({listed(shown)}). {instead}")


def listed(shown: Sequence[str]) -> str:
    """What is used, for a message: with the imports that are allowed, if there is another one."""
    imports = any(name.startswith(IMPORT) for name in shown)
    allowed = f"; allowed imports: {', '.join(sorted(ALLOWED))}"
    return f"{', '.join(shown)}{allowed if imports else ''}"


def chosen(used: Collection[str], of: Collection[str]) -> set[str]:
    """What is used of these names and kinds."""
    kinds = tuple(kind for kind in (IMPORT, PRIVATE) if kind in of)
    found = {name for name in used if name in of or kinds and name.startswith(kinds)}
    return found - {kind + name for kind in kinds for name in found}  # once is enough


@functools.lru_cache(maxsize=100)  # a check that is replayed asks again
def names_used(texts: tuple[str, ...], name: str) -> frozenset[str]:
    """The names that a function reads, itself or in what it uses of these texts.

    They are names of globals that the texts do not set, of attributes ("dtype =" for one that is
    set), and of what is imported. An
    attribute of an object that the function makes of its own class is left out. What a statement
    hides in another object's attribute counts as used: any function may find it there. So does
    each of FRAMES that is called as a cell is executed: it may reach what calls the function.
    """
    statements = _by_name(texts)
    return frozenset(_reached(statements, name, HIDDEN)) | _executed(texts)


@functools.lru_cache(maxsize=100)
def _executed(texts: tuple[str, ...]) -> frozenset[str]:
    return FRAMES & _reached(_by_name(texts), EXECUTED)


@functools.lru_cache(maxsize=20)
def _by_name(texts: tuple[str, ...]) -> Statements:
    """The statements that set or change a name; those of HIDDEN and EXECUTED, too."""
    notebook = slices.Notebook(texts)
    found: dict[str, list[slices.Statement]] = defaultdict(list)
    for name, places in notebook.sets.items():
        found[name] += [notebook.statements[place] for place in places]
    for name, places in notebook.changes.items():
        if name in found and not _is_imported(found[name]):  # np.testing.f(x) changes no np
            found[name] += [notebook.statements[place] for place in places]
    for statement in notebook.statements:
        for name in (*_marks(statement.node), *_declared(statement.node)):
            found[name].append(statement)
    return dict(found)


def _declared(node: ast.stmt) -> set[str]:
    """The globals that a function in a statement may set when it is called."""
    parts = (part for part in ast.walk(node) if isinstance(part, ast.Global))
    return {name for part in parts for name in part.names}


def _marks(node: ast.stmt) -> Iterator[str]:
    """HIDDEN, if a statement may set an attribute of an object; EXECUTED, if it calls something."""
    if isinstance(node, slices.IMPORTS):
        return
    if any(isinstance(part, ast.Call) for part in slices.at_once(node)) or getattr(
        node, "decorator_list", ()
    ):
        yield EXECUTED
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return
    if any(
        isinstance(part, ast.Attribute)
        and not isinstance(part.ctx, ast.Load)
        or getattr(part, "id", getattr(part, "attr", "")) in SETTERS
        for part in ast.walk(node)
    ):
        yield HIDDEN


def _reached(statements: Statements, *start: str) -> set[str]:
    """What the statements that set these names use, and those that set what they use."""
    used: set[str] = set()
    seen: set[slices.Statement] = set()
    todo, known = [*start], {*start}
    while todo:
        asked = todo.pop()
        for statement in statements.get(asked, ()):
            if isinstance(statement.node, slices.IMPORTS):
                used |= set(_imported(statement.node, asked))
            if statement in seen or isinstance(statement.node, slices.IMPORTS):
                continue
            seen.add(statement)
            read = statement.reads | statement.reads_later
            if not read <= statements.keys() | slices.BUILTINS:  # `from x import *` may set them
                read |= {slices.STAR} & statements.keys()
            todo += read - known
            known |= read
            used |= set(_globals(read.difference(statements)))
            used |= set(_in_text(statement.node, read, statements))
    return used


def _globals(read: Iterable[str]) -> Iterator[str]:
    """What it means to read these names of globals that no text sets."""
    for name in read:
        yield COMPILE if name == "compile" else name
        yield from _private(name)


def _private(name: str) -> Iterator[str]:
    if DUNDER.fullmatch(name) and name not in ORDINARY:
        yield PRIVATE + name


def _imported(node: ast.Import | ast.ImportFrom, name: str | None = None) -> Iterator[str]:
    """What a statement imports, with the packages it comes from. name: only under this name."""
    module = getattr(node, "module", None) or ""
    for alias in node.names:
        if name in (None, slices.STAR, alias.asname or alias.name.split(".")[0]):
            yield from alias.name.split(".")
            yield from module.split(".")
            package = (module or alias.name).split(".")[0]
            if package not in ALLOWED:
                yield IMPORT + package
            if module and alias.name.startswith("_"):
                yield PRIVATE + alias.name


def _in_text(node: ast.stmt, read: Collection[str], statements: Statements) -> Iterator[str]:
    """What the attributes, imports and texts in a statement use. read: the globals that it reads.

    Names with two underscores count wherever they stand: a class may define them.
    """
    modules = {name for name in read if _is_imported(statements.get(name, ()))}
    harmless = _literal_formats(node) | _own_attributes(node, statements)
    for part in ast.walk(node):
        if isinstance(part, slices.IMPORTS):
            yield from _imported(part)
            modules |= {alias.asname or alias.name.split(".")[0] for alias in part.names}
        elif isinstance(part, ast.Attribute):
            yield from _private(part.attr)
            if isinstance(part.ctx, ast.Load):
                yield from _attribute(part, modules, harmless)
            else:
                yield f"{part.attr} ="
        elif isinstance(part, ast.MatchClass):
            yield from part.kwd_attrs
        elif isinstance(part, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _private(part.name)
        elif isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
            yield from _private(part.id)
        elif isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield from _private(part.value)


def _attribute(
    part: ast.Attribute, modules: Collection[str], harmless: Collection[ast.AST]
) -> Iterator[str]:
    """What reading an attribute uses."""
    root: ast.expr = part
    while isinstance(root, ast.Attribute):
        root = root.value
    if part in harmless:
        return
    is_private = part.attr.startswith("_") and not part.attr.startswith(("__", FOREACH))
    if is_private and getattr(root, "id", "") in modules:
        yield PRIVATE + part.attr
    yield FORMAT if part.attr in ("format", "format_map") else part.attr


def _is_imported(setters: Sequence[slices.Statement]) -> bool:
    """Whether a name that these statements set is an import's; the set-up's, if there are none."""
    return all(isinstance(setter.node, slices.IMPORTS) for setter in setters)


def _literal_formats(node: ast.AST) -> set[ast.AST]:
    """The `"...".format` whose text stands there, and takes no attribute of what it is given."""
    return {
        part
        for part in ast.walk(node)
        if isinstance(part, ast.Attribute)
        and isinstance(part.value, ast.Constant)
        and isinstance(part.value.value, str)
        and part.attr == "format"
        and not re.search(r"\{\w*[.\[]", part.value.value)
    }


def _own_attributes(node: ast.stmt, statements: Statements) -> set[ast.AST]:
    """The attributes in a statement of what is visibly made by the texts' own classes."""
    parts = list(ast.walk(node))
    bound = {name for part in parts for name in _bound(part)}
    made = {part for part in parts if _is_made(part, bound, statements)}
    targets = {
        target
        for part in parts
        if isinstance(part, ast.Assign) and part.value in made
        for target in part.targets
        if isinstance(target, ast.Name)
    }
    others = {name for part in parts if part not in targets for name in _bound(part)}
    own = {target.id for target in targets} - others
    return {
        part
        for part in parts
        if isinstance(part, ast.Attribute)
        and not part.attr.startswith("_")
        and (getattr(part.value, "id", "") in own or part.value in made)
    }


def _bound(part: ast.AST) -> Iterator[str]:
    """The names that a node gives a value, whatever it is."""
    if isinstance(part, ast.Name) and not isinstance(part.ctx, ast.Load):
        yield part.id
    elif isinstance(part, (ast.Global, ast.Nonlocal)):
        yield from part.names
    yield from (getattr(part, key, None) or "" for key in ("arg", "name", "rest", "asname"))


def _is_made(part: ast.AST, bound: Collection[str], statements: Statements) -> bool:
    """Whether this is a call of a class of the texts, whose objects are what they seem.

    bound: the names that have another meaning here.
    """
    if not isinstance(part, ast.Call) or not isinstance(part.func, ast.Name):
        return False
    setters = statements.get(part.func.id, ()) if part.func.id not in bound else ()
    return bool(setters) and all(_is_plain_class(setter.node, statements) for setter in setters)


def _is_plain_class(node: ast.stmt, statements: Statements) -> bool:
    """Whether a statement makes a class that inherits nothing from a library."""
    if isinstance(node, ast.Assign):
        made = isinstance(node.value, ast.Call) and _is_maker(node.value.func, statements)
        return made and all(isinstance(target, ast.Name) for target in node.targets)
    if not isinstance(node, ast.ClassDef) or node.keywords:
        return False
    methods = {getattr(part, "name", "") for part in node.body}
    uses = [*node.bases, *(getattr(d, "func", d) for d in node.decorator_list)]
    return "__new__" not in methods and all(
        _is_maker(part, statements)
        or isinstance(part, ast.Name)
        and part.id in PLAIN
        and part.id not in statements
        for part in uses
    )


def _is_maker(node: ast.expr, statements: Statements) -> bool:
    """Whether this is one of ORIGINS, under its own name."""
    setters = statements.get(node.id, ()) if isinstance(node, ast.Name) else ()
    return bool(setters) and all(
        isinstance(setter.node, slices.IMPORTS)
        and set(_imported(setter.node, node.id)) == ORIGINS.get(node.id)
        for setter in setters
        if isinstance(node, ast.Name)
    )


def _used_here(function: Callable[..., Any]) -> set[str]:
    """What a function of this notebook uses, by the cells that define it and what it uses."""
    function = inspect.unwrap(function)
    variables = getattr(function, "__globals__", {})
    files = set(_file(function))
    while True:
        texts = tuple("".join(linecache.getlines(file)) for file in sorted(files))
        names = [n for n, value in variables.items() if value is function]
        used = {name for own in names for name in names_used(texts, own)}
        values = [variables[name] for name in used & set(variables)]
        ours = [value for value in values if _is_ours(value, function)]
        if {file for value in ours for file in _file(value)} <= files:
            return used.union(*(_origin(value) for value in values if value not in ours))
        files |= {file for value in ours for file in _file(value)}


def _is_ours(value: object, function: Callable[..., Any]) -> bool:
    """Whether the notebook of a function defines this value, too."""
    if isinstance(value, type):
        return value.__module__ == function.__module__
    return isinstance(value, FunctionType) and value.__globals__ is function.__globals__


def _file(value: object) -> set[str]:
    """The cells that hold the text of a function, or of a class's methods."""
    parts = list(vars(value).values()) if isinstance(value, type) else [value]
    return {part.__code__.co_filename for part in parts if isinstance(part, FunctionType)}


def _origin(value: Any) -> set[str]:
    """Where a value that another cell holds comes from: its module, and its name there."""
    if isinstance(value, ModuleType):
        names = value.__name__
    else:
        home = getattr(value, "__objclass__", value)
        names = f"{getattr(home, '__module__', None) or ''}.{getattr(value, '__name__', '')}"
    package = names.split(".")[0]
    found = set(filter(None, names.split(".")))
    is_foreign = isinstance(value, ModuleType) and package not in ALLOWED
    return found | ({IMPORT + package} if is_foreign else set())
