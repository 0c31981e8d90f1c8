"""What the lab scaling shows, and what its checks compare with."""
