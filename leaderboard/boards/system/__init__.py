"""Pages of systems, teams, and authors."""
