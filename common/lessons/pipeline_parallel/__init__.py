"""What the lab pipeline_parallel shows, and what its checks compare with."""
