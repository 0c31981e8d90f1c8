"""What the lab attention shows, and what its checks compare with."""
