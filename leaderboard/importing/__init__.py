"""Import of content: collections, reported results, the demo, and the initial data of a new site."""
