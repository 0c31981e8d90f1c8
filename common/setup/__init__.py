"""What runs before anything is installed, and what starts the course: environment, doctor, jupyter."""
