#!/bin/sh
# After a removal. dpkg: remove, then perhaps purge; rpm: 0. A purge removes what the daemons wrote, and the users.
# What an administrator put into /etc/pointsman (agents, certificates, tokens) stays.
set -e

case "$1" in
  remove|0)
    rm -f /etc/systemd/system/multi-user.target.wants/pointsman-namesrv.service \
      /etc/systemd/system/multi-user.target.wants/pointsman-observe.service \
      /etc/systemd/system/multi-user.target.wants/pointsman-agent@*.service
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
    ;;
  purge)
    # With DynamicUser= the folder is in private/, and a symlink in its place.
    for folder in pointsman pointsman-observe pointsman-agent; do rm -rf "/var/lib/private/$folder" "/var/lib/$folder"; done
    userdel pointsman-report 2>/dev/null || true
    groupdel pointsman 2>/dev/null || true
    for folder in agent tls ''; do rmdir "/etc/pointsman/$folder" 2>/dev/null || true; done
    ;;
esac
