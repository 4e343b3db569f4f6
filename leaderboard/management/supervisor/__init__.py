"""Keeps the whole site running under one process: Valkey, web, worker and beat.

`site.Site` says what runs and in which order; `processes.ProcessGroup` starts, watches, restarts and ends it;
`watchdog.py` ends it when the supervisor itself was killed.
"""
