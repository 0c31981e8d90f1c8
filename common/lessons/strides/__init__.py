"""What the lab strides shows, and what its checks compare with."""
