"""Backup and restore: the database, the stored files and the private ones, apart, and the last two verified by hash.

`making.make_backup` and `restoring.restore_backup` are the verbs; `manage.py backup` and `manage.py restore_backup` are
their doors.
"""
