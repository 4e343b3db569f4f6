"""Container images: archives, which are read, checked, and unpacked, and the folders that images read and write."""
