"""Status of submissions for users, and of the queue for operators."""
