"""What one lab shows or trains and no other lab uses: one noun per module."""
