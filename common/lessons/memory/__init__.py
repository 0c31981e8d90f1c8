"""What the lab memory shows, and what its checks compare with."""
