"""Notifications: rows are written first, in the transaction of the event; mail and webhooks are sent from the rows.

`events` finds events (the dispatcher asks every few seconds), `inbox` stores notices for each person, `sending` and
`webhooks` send them. See docs/decisions/0027-notifications.md.
"""
