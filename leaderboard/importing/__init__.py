"""Content on its way in: collections, reported figures, the demo, and what a new site begins with."""
