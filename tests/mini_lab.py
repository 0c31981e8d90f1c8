"""A small lab for the tests of the grader: one hole of each kind."""

from grading.source.labs import parse

SOURCE = '''\
# %% [markdown]
# # 99 · A small lab

# %% tags=["setup"]
import numpy as np
import torch

from common.checks import agree

rng = np.random.default_rng()

# %% [markdown]
# ### Exercise 1.1 · double
# Twice x.

# %% tags=["hole"]
def double(x):
    """Twice x. One line."""
    # BEGIN SOLUTION
    return 2 * x
    # END SOLUTION

# %% tags=["check"] points=2 limit_s=3
for n in (0, 1, int(rng.integers(2, 9))):
    x = torch.from_numpy(rng.standard_normal(n))
    want = x + x
    agree(double(x), want, f"double({x.tolist()})", mistakes={"That is the square.": x * x})
print("double: 3 sizes")

# %% tags=["check", "held-out"] limit_s=3
agree(double(21), 42, "double(21)")

# %% [markdown]
# ### Exercise 1.2 · scale_
# In place.

# %% tags=["hole"]
def scale_(x, factor):
    """Multiplies x in place."""
    # BEGIN SOLUTION
    x *= factor
    # END SOLUTION

# %% tags=["check"]
from common.checks.grader_link import in_place

x = np.arange(4.0)
in_place(scale_, x)(x[::2], 10)
agree(x, np.array([0.0, 1.0, 20.0, 3.0]), "scale_(x[::2], 10); x")

# %% [markdown]
# ### Exercise 2.1 · predicted
# A number.

# %% tags=["hole"]
# BEGIN SOLUTION
predicted = 12
# END SOLUTION

# %% tags=["check"]
agree(predicted, 12, "predicted")

# %% [markdown]
# ### Exercise 2.2 · Counter
# A class, reached through a driver, that uses double.

# %% tags=["hole"]
class Counter:
    """Counts in steps of double(1)."""

    def __init__(self):
        # BEGIN SOLUTION
        self.count = 0
        # END SOLUTION

    def step(self):
        # BEGIN SOLUTION
        self.count += double(1)
        return self.count
        # END SOLUTION

# %% tags=["driver"]
def count(steps):
    counter = Counter()
    return [counter.step() for _ in range(steps)]

# %% tags=["check"] limit_s=3
agree(count(3), [2, 4, 6], "count(3)")
'''


def mini_lab():
    return parse(SOURCE, "99_mini")
