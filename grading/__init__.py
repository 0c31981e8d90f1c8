"""One path from a source to a mark: for the student, the instructor and continuous integration."""
