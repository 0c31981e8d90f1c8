"""Reading a source: mistakes in its form are named."""

import pytest

from grading.source import labs
from tests.mini_lab import SOURCE, mini_lab


def test_exercises_points_and_order():
    lab = mini_lab()
    assert [(e.number, e.name, e.points, len(e.checks)) for e in lab.exercises] == [
        ("1.1", "double", 3, 2),
        ("1.2", "scale_", 1, 1),
        ("2.1", "predicted", 1, 1),
        ("2.2", "Counter", 1, 1),
    ]
    filled = lab.filled({"double": "def double(x): ..."})
    assert filled.exercise("double").hole.source == "def double(x): ..." and filled.exercise(
        "scale_"
    ) == lab.exercise("scale_")


@pytest.mark.parametrize(
    "old, new, says",
    [
        ('tags=["hole"]\ndef double', 'tags=["hole"]\ndef twice', "not double"),
        ('tags=["driver"]', 'tags=["drive"]', "unknown tag drive"),
        ("### Exercise 1.1 · double", "### Exercise 1.1: double", "a hole without a heading"),
        (
            "### Exercise 1.2 · scale_\n# In place.",
            "### Exercise 1.2 · scale_\n# %%\n3",
            "not a hole",
        ),
        (
            'agree(count(3), [2, 4, 6], "count(3)")',
            "\n# %% [markdown]\n# ### Exercise 3.1 · double\n"
            "# %% tags=['hole']\ndouble = 1\n# %% tags=['check']\n1",
            "two exercises named double",
        ),
    ],
)
def test_a_source_that_is_off_is_refused_by_name(old, new, says):
    assert old in SOURCE
    with pytest.raises(ValueError, match=says):
        labs.parse(SOURCE.replace(old, new, 1), "99_mini")


@pytest.mark.parametrize(
    "word",
    [
        "1",
        "01",
        "strides",
        "01_strides",
        "labs/01_strides.ipynb",
        "01_strides (1).ipynb",
        "01_strides-Copy1.ipynb",
        "Copy of 01_strides.ipynb",
        "Kopie von 01_strides.ipynb",
        "01_Strides.IPYNB",
        "lovelace_01_strides.ipynb",
        "01 strides.ipynb",
        "01_strides_final_v2.ipynb",
        "01_strides.ipynb.txt",
        "lab01.ipynb",
        "lovelace Lab 1.ipynb",
    ],
)
def test_a_lab_by_number_name_or_file(word):
    assert labs.resolve(word) == "01_strides"


@pytest.mark.parametrize(
    "word",
    ["0", "99", "stride", "", "01_other", "notes.ipynb", "010", "101_strides", "lab99", "../01"],
)
def test_an_unknown_lab_is_refused_with_those_there_are(word):
    if word == "../01":
        assert labs.resolve(word) == "01_strides"
    else:
        with pytest.raises(ValueError, match=f"there is no lab '{word}': the labs are 01_strides"):
            labs.resolve(word)


def test_a_name_of_two_labs_is_refused():
    with pytest.raises(ValueError, match="names two labs, 01_strides and 09_memory"):
        labs.resolve("09_memory after 01_strides.ipynb")
