"""What goes wrong in a kernel: before it runs, or while it runs."""


class SourceError(Exception):
    """An error whose text names the kernel and its line."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the text, without thirty lines of our own frames."""
        return [f"\033[31m{type(self).__name__}\033[0m: {self}"]


class KernelError(SourceError, TypeError):
    """The kernel, or one of its arguments, is outside of the kernel language."""


class LaunchError(SourceError, ValueError):
    """A GPU would refuse the grid, the block, the shared memory or the number of arguments."""


class OutOfBoundsError(SourceError, IndexError):
    """A thread reached outside of an array."""


class BarrierError(SourceError, RuntimeError):
    """Some threads wait where others never arrive."""


class UnwrittenError(SourceError, RuntimeError):
    """A thread read memory that nothing had written."""


class ThreadError(SourceError, ArithmeticError):
    """A thread did something that has no result, such as dividing an integer by zero."""


ERRORS = KernelError, LaunchError, OutOfBoundsError, BarrierError, UnwrittenError, ThreadError
