"""The pages of systems, teams and authors."""
