"""What the lab quantization shows, and what its checks compare with."""
