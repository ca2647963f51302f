"""What ``pointsman-report`` can do, a module a command; `pointsman_report.cli` puts them together."""
