"""What the lab collectives shows, and what its checks compare with."""
