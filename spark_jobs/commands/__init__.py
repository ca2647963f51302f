"""What ``pointsman-report`` can do, a module a command; `spark_jobs.cli` puts them together."""
