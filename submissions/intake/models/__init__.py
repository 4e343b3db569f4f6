"""From a request to run a model to queued jobs, and what its sender sees of them."""
