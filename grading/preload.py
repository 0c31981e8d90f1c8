"""What a process must settle before it imports what grading needs.

Processes that grade are forked from one that imports this module first (see classroom.py).
"""

import os

from grading.source.labs import light_jupytext

# PyTorch reads it at its import: the cores are for several notebooks at once.
os.environ.setdefault("OMP_NUM_THREADS", "1")
light_jupytext()
