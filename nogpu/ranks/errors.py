"""What can go wrong between ranks. A mistake inside one rank raises that rank's own exception."""


class RanksError(Exception):
    """What the ranks do does not fit together. The text names the ranks and their lines."""

    def _render_traceback_(self) -> list[str]:
        """What IPython shows: the text, without our own frames."""
        return [f"\033[31m{type(self).__name__}\033[0m: {self}"]


class DeadlockError(RanksError):
    """Ranks wait for ever. The message says who waits for whom, and in which line."""


class MismatchError(RanksError):
    """Two ranks disagree.

    About a message: its size, its dtype. About a collective: its name, shape, dtype, op, root.
    """


class UnfinishedError(RanksError):
    """A rank returned too early: nobody receives its message, or nobody waits for its handle."""


class RaceError(RanksError):
    """A tensor was changed between isend (or a collective with async_op=True) and its wait()."""


class RankFailedError(RanksError):
    """A rank's process ended, or the run took too long."""
