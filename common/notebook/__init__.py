"""The notebook that runs: its file, its cells, what its page shows, and what a grader will see."""
