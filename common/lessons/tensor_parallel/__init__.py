"""What the lab tensor_parallel shows, and what its checks compare with."""
