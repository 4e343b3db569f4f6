"""What collections are made of, and which of their documents runs rank first: lengths, vocabularies, overlap."""
