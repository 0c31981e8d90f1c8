"""What the labs use and do not teach: a noun a module."""
