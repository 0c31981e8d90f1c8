"""What the lab sharded_data_parallel shows, and what its checks compare with."""
