"""Building labs: deterministic, and no work is ever lost."""

import nbformat
import pytest

from grading.source import build, labs
from tests.mini_lab import SOURCE, mini_lab


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(labs, "names", lambda: ["99_mini"])
    monkeypatch.setattr(labs, "read", lambda name: mini_lab())
    return tmp_path / "labs"


def edit(path, text):
    notebook = build.read(path)
    next(cell for cell in notebook.cells if "hole" in cell.metadata.get("tags", [])).source = text
    nbformat.write(notebook, path)


def test_a_lab_has_stubs_tags_points_and_no_held_out_check():
    notebook = build.lab_notebook(mini_lab())
    text = "\n".join(cell.source for cell in notebook.cells)
    assert (
        "SOLUTION" not in text
        and "double(21)" not in text
        and "### Exercise 1.1 · double · 3 points" in text
    )
    assert "1 point\n" in text and len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert (
        build.GO_ON
        in next(
            cell for cell in notebook.cells if "check" in cell.metadata.get("tags", [])
        ).metadata["tags"]
    )
    nbformat.validate(notebook)


def test_an_edit_changes_one_cell_id():
    before = build.lab_notebook(mini_lab())
    after = build.lab_notebook(
        labs.parse(SOURCE.replace("Twice x.\n\n", "Two times x.\n\n"), "99_mini")
    )
    assert sum(a.id != b.id for a, b in zip(before.cells, after.cells, strict=True)) == 1


def test_a_second_build_is_identical(folder):
    assert build.build_labs(folder=folder) == []
    first = (folder / "99_mini.ipynb").read_bytes()
    (folder / "99_mini.ipynb").unlink()
    build.build_labs(folder=folder)
    assert (folder / "99_mini.ipynb").read_bytes() == first


def test_work_is_left_alone_and_with_force_kept_aside(folder, capsys):
    build.build_labs(folder=folder)
    path = folder / "99_mini.ipynb"
    for number in (1, 2):
        edit(path, "def double(x):\n    return 2 * x")
        mine = path.read_bytes()
        assert build.build_labs(folder=folder) == [path] and path.read_bytes() == mine
        assert "has work in it" in capsys.readouterr().out
        assert build.build_labs(force=True, folder=folder) == []
        assert (folder / "backups" / f"99_mini-{number}.ipynb").read_bytes() == mine
        assert not build.has_work(path)


def test_outputs_alone_do_not_count_as_work(folder, monkeypatch):
    build.build_labs(folder=folder)
    path = folder / "99_mini.ipynb"
    notebook = build.read(path)
    notebook.cells[1].execution_count = 3
    notebook.metadata["language_info"]["version"] = "3.12"
    nbformat.write(notebook, path)
    assert not build.has_work(path)


def test_a_file_that_is_not_a_notebook_counts_as_work(folder):
    build.build_labs(folder=folder)
    (folder / "99_mini.ipynb").write_text("my notes")
    assert build.build_labs(folder=folder) and (folder / "99_mini.ipynb").read_text() == "my notes"
    build.build_labs(force=True, folder=folder)
    assert (folder / "backups" / "99_mini-1.ipynb").read_text() == "my notes"


def test_a_write_that_fails_leaves_the_old_file(folder, monkeypatch):
    build.build_labs(folder=folder)
    path = folder / "99_mini.ipynb"
    old = path.read_bytes()

    def full(notebook, new):
        new.write_text("half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(nbformat, "write", full)
    with pytest.raises(OSError, match="No space"):
        build.write(build.solution_notebook(mini_lab()), path)
    assert path.read_bytes() == old and list(folder.iterdir()) == [path]


@pytest.mark.slow
def test_solutions_are_executed_once_and_new_prose_costs_no_run(
    folder, tmp_path, monkeypatch, capsys
):
    build.build_solutions(folder=tmp_path)
    path = tmp_path / "99_mini.ipynb"
    executed = build.read(path)
    assert any("double: 3 sizes" in str(cell.get("outputs")) for cell in executed.cells)
    assert (
        "execution" not in str([cell.metadata for cell in executed.cells])
        and executed.metadata["executed_on"]
    )
    before = path.read_bytes()
    monkeypatch.setattr(build, "execute", lambda *_: pytest.fail("executed again"))
    build.build_solutions(folder=tmp_path)
    assert path.read_bytes() == before
    monkeypatch.setattr(
        labs,
        "read",
        lambda name: labs.parse(SOURCE.replace("Twice x.\n\n", "Two times x.\n\n"), "99_mini"),
    )
    build.build_solutions(folder=tmp_path)
    assert "Two times x." in path.read_text() and "double: 3 sizes" in path.read_text()


@pytest.mark.slow
def test_where_checks_alone_changed_other_outputs_stay(folder, tmp_path, monkeypatch):
    build.build_solutions(folder=tmp_path)
    path = tmp_path / "99_mini.ipynb"
    executed = build.read(path)
    drawn = nbformat.v4.new_output("stream", text="drawn on a GPU")
    plain = next(
        cell
        for cell in executed.cells
        if cell.cell_type == "code" and "check" not in cell.metadata.get("tags", [])
    )
    plain.outputs, executed.metadata["executed_on"] = [drawn], "a GPU"
    nbformat.write(executed, path)
    monkeypatch.setattr(
        labs,
        "read",
        lambda name: labs.parse(SOURCE.replace("double: 3 sizes", "double: many sizes"), "99_mini"),
    )
    build.build_solutions(folder=tmp_path)
    text, after = path.read_text(), build.read(path)
    assert "drawn on a GPU" in text and after.metadata["executed_on"] == "a GPU"
    assert (
        any("double: many sizes" in str(cell.get("outputs")) for cell in after.cells)
        and "double: 3 sizes" not in text
    )
    helper = SOURCE.replace(
        "def count(steps)", "def one_more(x):\n    return x + 1\n\ndef count(steps)"
    )
    monkeypatch.setattr(labs, "read", lambda name: labs.parse(helper, "99_mini"))
    build.build_solutions(folder=tmp_path)  # helper code that checks alone call
    assert "drawn on a GPU" in path.read_text() and "one_more" in path.read_text()
    monkeypatch.setattr(
        labs,
        "read",
        lambda name: labs.parse(SOURCE.replace("return 2 * x", "return x * 2"), "99_mini"),
    )
    build.build_solutions(folder=tmp_path)
    assert (
        "drawn on a GPU" not in path.read_text()
        and build.read(path).metadata["executed_on"] != "a GPU"
    )
