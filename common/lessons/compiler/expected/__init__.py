"""What the checks of the lab compiler compare with."""
