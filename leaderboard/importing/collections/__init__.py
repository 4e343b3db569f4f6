"""Test collections on their way in: found, inspected, stored. The only writer of datasets that runs are scored on.

`importer.import_dataset` is the one call; the command and the admin are its doors.
"""
