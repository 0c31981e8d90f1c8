"""What the labs use and do not teach: one noun per module."""
