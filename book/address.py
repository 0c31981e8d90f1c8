"""Where the repository is published, and the addresses that follow from it."""

import os

from common.setup import environment

LOCAL = "http://localhost:8888/lab/tree"  # where `make lab` serves JupyterLab


def repository() -> str:
    """The repository's address on GitHub: COURSE_ADDRESS, or pyproject's; "" if neither is set."""
    address = os.environ.get("COURSE_ADDRESS") or environment.repository()
    return address.rstrip("/").removesuffix(".git")


def of_file(path: str) -> str:
    """The page of a file of the repository, or "" if the repository has no address."""
    return f"{repository()}/blob/main/{path}" if repository() else ""


def launches(path: str) -> dict[str, str]:
    """{label: address} of the ways to open a notebook."""
    found = {"Open in JupyterLab": f"{LOCAL}/{path.removeprefix('labs/')}"}
    if address := of_file(path):
        host, _, rest = address.partition("github.com")
        if host and rest:
            found["Open in Colab"] = f"https://colab.research.google.com/github{rest}"
        found["See it on GitHub"] = address
    return found
