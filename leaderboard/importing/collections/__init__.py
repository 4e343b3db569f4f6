"""Import of test collections; the only writer of datasets with scored runs.

`importer.import_dataset` is the entry point for the command line and the admin.
"""
