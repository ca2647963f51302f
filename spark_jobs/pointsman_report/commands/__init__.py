"""What ``pointsman-report`` can do; `pointsman_report.cli` puts the commands together."""
