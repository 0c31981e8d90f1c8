"""What the lab autodiff shows, and what its checks compare with."""
