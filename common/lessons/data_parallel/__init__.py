"""What the lab data_parallel shows, and what its checks compare with."""
