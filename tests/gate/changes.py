"""What has changed since the last merge, as git says."""

import os
import subprocess

from common.paths import ROOT


def base() -> str:
    """The commit that this tree is compared with; "" outside of a git repository.

    COURSE_BASE names it. Otherwise it is where this branch left the main branch of the repository
    that it was cloned from. Without such a branch it is HEAD: only what is not committed counts.
    """
    named = os.environ.get("COURSE_BASE", "")
    if named and not _git("rev-parse", "--verify", "--quiet", f"{named}^{{commit}}"):
        raise SystemExit(f"COURSE_BASE is {named!r}, which is no commit of this repository")
    return named or _git("merge-base", "HEAD", "origin/HEAD") or commit()


def commit() -> str:
    """The commit of this tree; "" outside of a git repository."""
    return _git("rev-parse", "--verify", "--quiet", "HEAD")


def files(since: str) -> frozenset[str]:
    """The files that differ from a commit, and those that git does not know yet: paths in ROOT."""
    changed = _git("diff", "--name-only", "--no-renames", "-z", since, "--") if since else ""
    new = _git("ls-files", "--others", "--exclude-standard", "-z")
    return frozenset(filter(None, (changed + new).split("\0")))


def tracked(*folders: str) -> frozenset[str]:
    """The files of these folders that git knows; none outside of a git repository."""
    return frozenset(filter(None, _git("ls-files", "-z", "--", *folders).split("\0")))


def _git(*arguments: str) -> str:
    """What git prints; "" if it refuses, or is not installed."""
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip("\n") if done.returncode == 0 else ""
