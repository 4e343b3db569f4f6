"""The real servers that the tests run against, each started for one session and stopped by its process id."""
