#!/bin/sh
# After an installation or an upgrade. dpkg: configure [VERSION BEFORE]; rpm: 1 first, 2 upgrade.
set -e

case "$1" in configure|1|2) ;; *) exit 0 ;; esac
systemd-sysusers pointsman.conf

# Nothing is enabled: most machines run one of the daemons, and an agent needs its broker's name first.
[ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1:$2" in
  # What runs continues as the new version. The name server serves its snapshot's routes immediately; an agent is restarted
  # while its broker runs, so it hands its registration over. A daemon that does not start must not leave the package half
  # configured: systemd shows it as failed.
  configure:?*|2:*)
    systemctl try-restart pointsman-namesrv.service pointsman-observe.service 'pointsman-agent@*.service' || true ;;
esac
