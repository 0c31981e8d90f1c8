"""What several labs train with: replicas of small models, Adam, the bytes of operations."""
