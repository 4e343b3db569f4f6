"""What makes a Celery worker one of ours: it looks for work by itself, gives it back when it stops, and can be trusted.

`own` says who this process is and whether it may work, `looking` finds work that no bell told of, `stopping` gives work
back at SIGTERM, `hung` ends pool processes that no longer answer, `presence` ties all of it to Celery's worker.
"""
