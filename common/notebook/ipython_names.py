"""What Jupyter gives every cell, for an answer that runs outside of Jupyter."""

from typing import Any, NoReturn

OFTEN = ("len", "iter", "getitem", "contains", "str", "repr", "bool", "int", "float", "eq", "add")


class NotRun:
    """The output of a shell command or magic that was not run. Any use of it says so."""

    def __init__(self, what: str) -> None:
        self._what = what

    def _refuse(self, *_: Any) -> NoReturn:
        raise RuntimeError(f"outside of Jupyter nothing runs {self._what}, so it has no output")

    def __getattr__(self, name: str) -> NoReturn:
        self._refuse()


for _name in OFTEN:
    setattr(NotRun, f"__{_name}__", NotRun._refuse)


class Shell:
    """In place of IPython's shell: it has every method, and does nothing."""

    def __getattr__(self, method: str) -> Any:
        def ignored(*arguments: Any, **options: Any) -> NotRun:
            words = [argument for argument in arguments if isinstance(argument, str)]
            return NotRun(f"`{' '.join(words) or method}`")

        return ignored


def get_ipython() -> Shell:
    """The shell."""
    return Shell()


def install() -> None:
    """From now on, IPython gives this shell to all who ask for the one that runs."""
    import IPython
    from IPython.core import getipython

    for module in (IPython, getipython):
        module.__dict__["get_ipython"] = get_ipython


def display(*objects: Any, **options: Any) -> None:
    """Show nothing: there is no page."""
