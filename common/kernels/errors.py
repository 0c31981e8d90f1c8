"""What the simulator says when a kernel cannot be run, or goes wrong while it runs."""


class Told(Exception):
    """An error whose text names the kernel and its line."""

    def _render_traceback_(self):
        """What IPython shows of it: the text without thirty lines of our own frames."""
        return [f"\033[31m{type(self).__name__}\033[0m: {self}"]


class KernelError(Told, TypeError):
    """The kernel, or an argument of it, is outside of what the simulator knows."""


class LaunchError(Told, ValueError):
    """The grid, the block, the shared memory or the number of arguments is not one that a GPU would take."""


class OutOfBoundsError(Told, IndexError):
    """A thread reached outside of an array."""


class BarrierError(Told, RuntimeError):
    """Some threads wait where others never arrive."""


class UnwrittenError(Told, RuntimeError):
    """A thread read memory that nothing had written."""


class ThreadError(Told, ArithmeticError):
    """A thread did what has no result: an integer divided by zero, a variable used before it had a value."""


ERRORS = KernelError, LaunchError, OutOfBoundsError, BarrierError, UnwrittenError, ThreadError
