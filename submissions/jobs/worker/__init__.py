"""What makes a Celery worker one of ours: `polling` finds work that no message told of; `registration` announces the
worker, gives its work back at SIGTERM, and ends pool processes that no longer answer. `submissions.queue.process` says
who this process is and whether it may work.
"""
