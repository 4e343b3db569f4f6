"""Date and time formats of pages, mails, and the admin, all in UTC."""
