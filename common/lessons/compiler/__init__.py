"""What the lab compiler shows, and what its checks compare with."""
