"""What workers find of collections and runs, and what everyone may see of it."""
