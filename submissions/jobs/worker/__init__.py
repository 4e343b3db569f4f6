"""What makes a Celery worker one of ours: it looks for work by itself, gives it back when it stops, and can be trusted.

`polling` finds work that no message told of, `shutdown` gives work back at SIGTERM, `watchdog` ends pool processes that
no longer answer, `registration` ties all of it to Celery's worker. `submissions.queue.process` says who this process is
and whether it may work.
"""
