"""Pointsman's own servers over gRPC: routes from name servers, coordination of groups by the brokers' agents.

::

    grpc_routes.py, route_stream.py   queries and watches of routes; codec.py converts them
    agents/                           group membership, queue locks, offsets
    links.py                          channels with their stubs; status.py: gRPC's errors as the library's
    thread_channel.py                 a channel on gRPC's own threads, for programs that fork
"""
