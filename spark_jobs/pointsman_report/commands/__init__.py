"""The commands of ``pointsman-report``; `pointsman_report.cli` combines them."""
