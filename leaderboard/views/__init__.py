"""Pages. Each view translates the request, makes one domain call, and translates the answer."""
