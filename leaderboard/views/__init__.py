"""Views of pages. Each translates the request, makes one domain call, and translates the result."""
