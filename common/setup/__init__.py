"""What prepares and starts the course: environment (needs no packages), doctor, jupyter."""
