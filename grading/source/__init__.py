"""Text to notebooks to students: holes, labs, notebook, build, release."""
