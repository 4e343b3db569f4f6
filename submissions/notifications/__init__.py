"""Notifications by inbox, mail, and webhook, stored in the transaction of the event and sent later.

`events` finds events (the dispatcher calls it every few seconds), `inbox` stores notices for each user, `sending` and
`webhooks` send them. See docs/decisions/0027-notifications.md.
"""
