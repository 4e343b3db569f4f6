"""Who is ranked: systems, their names and histories, merging, anonymity, challenges."""
