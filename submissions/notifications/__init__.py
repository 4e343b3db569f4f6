"""What people are told: rows first, in the transaction of the event; mail and webhooks are sent from the rows.

`finished`, `events` and `rounds` find what there is to tell (the dispatcher asks them every few seconds), `outbox`
writes it down for each person, `mail` and `deliveries` send it. docs/decisions/0030 says why it is so.
"""
