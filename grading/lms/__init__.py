"""Where marks go: canvas, gradescope, nbgrader."""
