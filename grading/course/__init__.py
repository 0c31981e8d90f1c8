"""What a class needs: deadlines, a roster, overrides, written answers, a page of the class."""
