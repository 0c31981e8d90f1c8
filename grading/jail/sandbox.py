"""What every sandbox has, as the grader sees it; and NoJail, for running without one."""

import contextlib
import os
import subprocess
import sys
from abc import ABC, abstractmethod
from typing import ClassVar

from common.paths import ROOT
from grading.jail import cgroups, limits, syscalls, visible
from grading.jail.confinement import Confinement, Unconfined

TRIAL_S = 60.0
ONLY_LINUX = "only Linux on x86-64 or arm64 has one"


class Jail(ABC):
    """How the grader starts the fork server, from which all workers are forked."""

    name: ClassVar[str]

    @abstractmethod
    def problem(self) -> str | None:
        """Why it does not work on this machine, in a few words; None if it does."""

    @abstractmethod
    def command(self, command: list[str]) -> list[str]:
        """The command line that runs a command inside."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """The environment variables of what runs inside."""

    @abstractmethod
    def group(self) -> contextlib.AbstractContextManager[list[str]]:
        """A control group for all that runs inside: what to put before the command line."""

    @abstractmethod
    def confinement(self) -> contextlib.AbstractContextManager[Confinement]:
        """The limits of the fork server and its workers. At the end, their files are removed."""


class NoJail(Jail):
    """No sandbox: for your own notebook, or if the instructor asks for none (--unsafe)."""

    name = "none"

    def problem(self) -> None:
        return None

    def command(self, command: list[str]) -> list[str]:
        return command

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def group(self) -> contextlib.AbstractContextManager[list[str]]:
        return contextlib.nullcontext([])

    def confinement(self) -> contextlib.AbstractContextManager[Confinement]:
        return contextlib.nullcontext(Unconfined(has_gpu=visible.has_gpu()))


class Sandbox(Jail):
    """What bubblewrap and Landlock share. Each is tried on this machine before it is used."""

    @abstractmethod
    def missing(self) -> str | None:
        """What it needs and this machine lacks, in a few words."""

    def problem(self) -> str | None:
        if not syscalls.known_machine():
            return ONLY_LINUX
        return self.missing() or self._trial()

    def _trial(self) -> str | None:
        """What failed when a worker was started on trial; None if nothing did."""
        try:
            with self.confinement() as confinement:
                module = ["-S", "-P", "-m", "grading.jail.trial", confinement.as_json()]
                trial = subprocess.run(
                    self.command([sys.executable, *module]),
                    env=self.environment() | {"PYTHONPATH": str(ROOT)},
                    capture_output=True,
                    text=True,
                    timeout=TRIAL_S,
                )
        except subprocess.TimeoutExpired:
            return "it did not start in time"
        except OSError as error:
            return error.strerror or str(error)
        if trial.returncode == 0:
            return None
        lines = trial.stderr.strip().splitlines()
        return lines[-1] if lines else f"exit code {trial.returncode}"

    def environment(self) -> dict[str, str]:
        return visible.environment()

    def group(self) -> contextlib.AbstractContextManager[list[str]]:
        return cgroups.group(limits.GROUP_BYTES, limits.GROUP_PROCESSES)
