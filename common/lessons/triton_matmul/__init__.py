"""What the lab triton_matmul shows, and what its checks compare with."""
