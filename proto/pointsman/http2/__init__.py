"""The server's side of HTTP/2 (RFC 9113) without I/O: bytes and calls in, events and bytes out.

It has no socket, no clock and no event loop.

Read it in this order; each rule names its section of the RFC.

1. ``frame_codec``: the nine octets before every frame, and the frames that a server writes.
2. ``header_blocks``: HPACK (RFC 7541), what a request must have, and the dictionary of blocks that were seen before.
3. ``http2_stream``: the state of one request and its response.
4. ``http2_sending``: responses within the peer's windows, and the end of a connection.
5. ``http2_connection``: what each received frame does.
6. ``peer_limits``: what one peer may make the server keep or do.
7. ``grpc_framing``: gRPC's messages, deadlines and statuses, which are the content of these frames.

>>> from pointsman.http2.frame_codec import PREFACE, settings_frame
>>> from pointsman.http2.http2_connection import Http2Connection
>>> connection = Http2Connection()
>>> connection.take_output()[:9].hex(" ")  # SETTINGS: 12 octets, type 4, no flags, stream 0
'00 00 12 04 00 00 00 00 00'
>>> get = bytes.fromhex("00000f 01 05 00000001 82 86 84 41 0a") + b"127.0.0.1\\n"[:9] + b"0"
>>> [request] = connection.receive(PREFACE + settings_frame({}) + get, now=0.0)
>>> request.stream_id, request.headers.method, request.headers.path, request.is_end
(1, b'GET', b'/', True)
"""
