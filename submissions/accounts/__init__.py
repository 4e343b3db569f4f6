"""Accounts, teams, and tokens; the only writer of `User`, `Team`, `Membership`, and `ApiToken`."""
