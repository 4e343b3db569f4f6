"""Publication of entries on boards and their removal; the only writer of `Entry` and `Seed`."""
