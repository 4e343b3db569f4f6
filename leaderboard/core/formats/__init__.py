"""Date and time formats of the admin, all in UTC."""
