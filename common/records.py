"""JSON files in the student's own folder: never lost, never half-written."""

import contextlib
import json
import os
import pathlib
import warnings

from common.paths import LABS

_unsaved = {}  # what a folder that refuses to be written would lose, for as long as this process lives


def folder():
    """Folder of the student's own files: the environment variable COURSE_FOLDER, or labs/."""
    return pathlib.Path(os.environ.get("COURSE_FOLDER") or LABS)


def load(name, is_valid):
    """What the file holds, or None. A file that can't be read, or is not valid, is put aside with a warning."""
    path = folder() / name
    if path in _unsaved:
        return _unsaved[path]
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if is_valid(record):
            return record
        problem = "it is not laid out as the course writes it"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = error.strerror
    except ValueError:
        problem = "it is no JSON"
    warnings.warn(
        f"{path} can't be read ({problem}); {_put_aside(path)}, and a new one is begun.",
        stacklevel=3,
    )
    return None


def save(name, record) -> None:
    """Writes the dict; if the folder can't be written, warns once and keeps it for this session."""
    path = folder() / name
    partial = path.with_name(f"{name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps(record, indent=1), encoding="utf-8")
        os.replace(partial, path)  # a reader, or a crash, finds the old file or the new one
        _unsaved.pop(path, None)
    except OSError as error:
        if path not in _unsaved:
            warnings.warn(
                f"{path} can't be written ({error.strerror}); it is kept for this session only. "
                "The environment variable COURSE_FOLDER names another folder.",
                stacklevel=3,
            )
        _unsaved[path] = record
        with contextlib.suppress(OSError):
            partial.unlink()


def _put_aside(path) -> str:
    """Renames the file to the first free name.unreadable-1, -2, ...; says what happened."""
    number = 1
    while (aside := path.with_name(f"{path.name}.unreadable-{number}")).exists():
        number += 1
    try:
        path.rename(aside)
    except OSError:
        return "it could not be renamed"
    return f"it is kept as {aside.name}"
