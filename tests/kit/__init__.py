"""What tests share; what one file uses is beside it. Take real parts where they serve, scripted ones for faults.

- ``waiting``: ``eventually`` in the event loop, ``until`` in threads, ``running`` for a task, ``InstantClock``.
- ``name_server``: here (``in_process``; ``peer``, with a client) or as a process; scripted ones for clients' faults.
- ``agent``: in this process or as a process; ``services`` for what consumers use of it, and their clients.
- ``broker``: Redis (``redis.process``, ``redis.with_agent``), RocketMQ (frames, fakes); ``under_test`` for both.
- ``client``: producers and consumers against brokers and groups in memory, with a clock by hand.
- ``ctl``, ``report``, ``history``, ``operations``: the command line, the nightly report, rows, deploy/.
- ``faults``: a proxy that can be cut, full disks, hostile bytes, kills; ``certificates``, ``tls_peers``, ``refusal``.
"""
