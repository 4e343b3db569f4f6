"""What a submission looks like to somebody, and what operators see of the queue."""
