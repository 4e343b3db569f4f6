"""Put entries on boards and take them off: the only writer of `Entry` and `Seed`."""
