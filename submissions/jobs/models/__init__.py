"""What workers do with a model: retrieve in the sandbox, encode in shards, publish."""
