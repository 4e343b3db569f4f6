"""The queue: states of jobs, claims, leases, heartbeats."""
