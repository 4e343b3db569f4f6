"""Two to six systems side by side: per dataset, by query, and by what they find first."""
