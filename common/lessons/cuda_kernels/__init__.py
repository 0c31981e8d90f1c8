"""What the lab cuda_kernels shows, and what its checks compare with."""
