"""From a request to run a model to queued jobs."""
