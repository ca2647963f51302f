#!/usr/bin/env bash
# Run the unit tests of the alerts; promtool is installed where it is missing, or one line states what to install.
set -euo pipefail
cd "$(dirname "$0")/../monitoring/prometheus"

command -v promtool >/dev/null || ../../dev/install_programs.sh tests
promtool check rules --lint-fatal rules.yaml
promtool test rules rules_test.yaml
