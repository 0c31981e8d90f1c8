"""What can go wrong between ranks. None of these is raised for a mistake inside one rank: that rank's own exception is."""


class RanksError(Exception):
    """What p ranks do together does not fit together."""


class DeadlockError(RanksError):
    """Ranks wait for what never comes; the message says who waits for whom, and in which line."""


class MismatchError(RanksError):
    """Two ranks disagree: on a message's size or dtype, or on which collective is next, its shape, dtype, op or root."""


class UnfinishedError(RanksError):
    """A rank returned before what it had begun was over: a message that nobody receives, a handle that nobody waits for."""


class RaceError(RanksError):
    """A tensor was changed between isend (or a collective with async_op=True) and its wait()."""


class RankFailed(RanksError):
    """A process of a rank ended, or went on for too long."""
