"""The process of a daemon: its command line, logs, systemd, signals, threads, and how tests steer it."""
