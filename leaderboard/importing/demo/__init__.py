"""What a new site is filled with, so that it shows something real from the first minute."""
