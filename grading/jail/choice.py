"""The choice of a sandbox for untrusted code: the best one that works on this machine."""

import json

from grading.errors import CommandError
from grading.jail import syscalls
from grading.jail.bubblewrap import Bubblewrap, Namespaces
from grading.jail.confinement import Confinement, Unconfined
from grading.jail.landlock import Landlock, Landlocked
from grading.jail.sandbox import ONLY_LINUX, Jail, NoJail

SANDBOXES = (Bubblewrap(), Landlock())  # the best first
JAILS: dict[str, Jail] = {jail.name: jail for jail in (*SANDBOXES, NoJail())}
CONFINEMENTS: dict[str, type[Confinement]] = {
    Bubblewrap.name: Namespaces,
    Landlock.name: Landlocked,
    NoJail.name: Unconfined,
}
UNSAFE = "grade without a sandbox where nothing can be harmed (--unsafe)"


class JailError(CommandError):
    """There is no sandbox here, or it does not hold; the text is for the instructor."""


def choose(word: str | None = None) -> Jail:
    """The sandbox of this name (bubblewrap, landlock, none), or the best that works here.

    JailError says why there is none.
    """
    return _best() if word is None else _named(word)


def _named(word: str) -> Jail:
    if word not in JAILS:
        raise JailError(f"There is no sandbox {word!r}: choose one of {', '.join(JAILS)}.")
    if problem := JAILS[word].problem():
        raise JailError(f"The sandbox {word} is not available on this machine ({problem}).")
    return JAILS[word]


def _best() -> Jail:
    if not syscalls.known_machine():
        raise JailError(f"No sandbox is available on this machine ({ONLY_LINUX}): {UNSAFE}.")
    problems = []
    for sandbox in SANDBOXES:
        problem = sandbox.problem()
        if problem is None:
            return sandbox
        problems.append(f"{sandbox.name}: {problem}")
    raise JailError(
        f"No sandbox is available on this machine ({'; '.join(problems)}): install bubblewrap "
        f"(Debian, Ubuntu: apt-get install bubblewrap), or {UNSAFE}."
    )


def confinement_from_json(text: str) -> Confinement:
    """The Confinement that as_json wrote on a command line."""
    settings = json.loads(text)
    return CONFINEMENTS[settings.pop("jail")](**settings)
