"""What the checks of the lab sharded_data_parallel compare with."""
