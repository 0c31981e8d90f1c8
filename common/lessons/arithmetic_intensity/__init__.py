"""What the lab arithmetic_intensity shows, and what its checks compare with."""
