"""Job queue: states, claims, leases, and heartbeats."""
