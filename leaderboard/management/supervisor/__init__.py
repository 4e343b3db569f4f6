"""Supervisor that runs the whole site under one process: Valkey, web, worker and beat.

`site.Site` defines what runs and in which order. `processes.ProcessGroup` starts, watches, restarts and ends
processes; `watchdog.py` ends them if the supervisor itself was killed.
"""
