"""Systems: metadata, histories, merging, anonymity, and challenges."""
