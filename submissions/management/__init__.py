"""Commands about submissions, teams and quotas."""
