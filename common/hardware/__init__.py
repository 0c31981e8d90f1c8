"""This machine: its processors and GPUs, what they can do at most, and how long code takes."""
