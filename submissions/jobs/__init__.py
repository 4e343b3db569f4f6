"""Jobs of each kind, and the workers that run them."""
