"""The rows of boards: present ones, and those of every earlier revision."""
