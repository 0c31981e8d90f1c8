"""What the lab triton_softmax shows, and what its checks compare with."""
