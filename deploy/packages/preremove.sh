#!/bin/sh
# Before a removal, not before an upgrade. dpkg: remove; rpm: 0.
set -e

case "$1" in remove|0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
  # Agents first: they unregister their brokers from the name server on the same machine.
  systemctl stop 'pointsman-agent@*.service' || true
  systemctl stop pointsman-namesrv.service pointsman-observe.service || true
fi
