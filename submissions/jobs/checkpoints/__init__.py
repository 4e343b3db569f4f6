"""What workers do with engines: retrieve, with a model in the sandbox, encode in shards, publish."""
