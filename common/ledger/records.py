"""JSON files in the student's own folder: never lost, never half-written."""

import json
import os
import pathlib
import warnings
from collections.abc import Callable
from typing import Any

from common import files
from common.paths import LABS

_unsaved: dict[pathlib.Path, Any] = {}  # what could not be written, kept while this process lives


def folder() -> pathlib.Path:
    """Folder of the student's own files: the environment variable COURSE_FOLDER, or labs/."""
    return pathlib.Path(os.environ.get("COURSE_FOLDER") or LABS)


def load(name: str, is_valid: Callable[[Any], bool]) -> Any:
    """What the file holds, or None. An unreadable or invalid file is renamed, with a warning."""
    path = folder() / name
    if path in _unsaved:
        return _unsaved[path]
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if is_valid(record):
            return record
        problem = "it does not have the form in which the course writes it"
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        problem = error.strerror or str(error)
    except ValueError:
        problem = "it is not JSON"
    warnings.warn(
        f"{path} can't be read ({problem}); {_set_aside(path)}, and a new one is started.",
        stacklevel=3,
    )
    return None


def save(name: str, record: Any) -> None:
    """Write the record. If the folder can't be written, warn once and keep it for this session."""
    path = folder() / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, json.dumps(record, indent=1))
        _unsaved.pop(path, None)
    except OSError as error:
        if path not in _unsaved:
            warnings.warn(
                f"{path} can't be written ({error.strerror}); it is kept for this session only. "
                "The environment variable COURSE_FOLDER names another folder.",
                stacklevel=3,
            )
        _unsaved[path] = record


def _set_aside(path: pathlib.Path) -> str:
    try:
        aside = files.set_aside(path, f"{path.name}.unreadable")
    except OSError:
        return "it could not be renamed"
    return f"it is kept as {aside.name}"
