"""Container images: reading, checking, and unpacking of archives, and the folders that images read and write."""
