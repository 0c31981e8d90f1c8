"""What the checks of the lab scaling compare with."""
