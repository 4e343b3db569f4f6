"""Notifications: rows are written first, in the transaction of the event; mail and webhooks are sent from the rows.

`events` finds what there is to tell (the dispatcher asks every few seconds), `outbox` writes it down for each person,
`mail` and `webhooks` send it. docs/decisions/0030 says why.
"""
