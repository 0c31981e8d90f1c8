"""Where the course is on this machine."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LABS = ROOT / "labs"
COURSE = ("common", "nogpu")  # the packages that a lab imports
CODE = (*COURSE, "grading")
LESSONS = ROOT / "common" / "lessons"  # a folder for each lab
OF_CHECKS = ("expected.py", "expected/*.py", "clinic_*.py")  # what in it only checks use


def of_checks() -> list[Path]:
    """The files of the labs' folders that only checks use; a worker does not see them."""
    return sorted(path for pattern in OF_CHECKS for path in LESSONS.glob(f"*/{pattern}"))


def compared_with() -> list[str]:
    """The names of the modules in which checks find their expected values."""
    files = [path for path in of_checks() if not path.stem.startswith(("clinic_", "__"))]
    return [".".join(path.relative_to(ROOT).with_suffix("").parts) for path in files]
