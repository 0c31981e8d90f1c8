"""What the simulator says when a kernel cannot be run, or goes wrong while it runs."""


class KernelError(TypeError):
    """The kernel, or an argument of it, is outside of what the simulator knows."""


class LaunchError(ValueError):
    """The grid, the block, the shared memory or the number of arguments is not one that a GPU would take."""


class OutOfBoundsError(IndexError):
    """A thread reached outside of an array."""


class BarrierError(RuntimeError):
    """Some threads wait where others never arrive."""


class UnwrittenError(RuntimeError):
    """A thread read memory that nothing had written."""


class ThreadError(ArithmeticError):
    """A thread did what has no result: an integer divided by zero, a variable used before it had a value."""


ERRORS = KernelError, LaunchError, OutOfBoundsError, BarrierError, UnwrittenError, ThreadError
