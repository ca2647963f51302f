"""The rules of the name server: pure and synchronous; time is an argument, in seconds of any monotonic clock.

Imports the standard library minus I/O, time, randomness and logging, and the pure half of what all parts share.
Mutators return their events as frozen values; a call that raises has changed nothing. Their caller passes on what
brokers send, sweeps now and then, records the events, and answers queries from the routes:

>>> from pointsman_namesrv.core.liveness import LivenessRules
>>> from pointsman_namesrv.core.model import BrokerIdentity, DataVersion, Health, QueueConfig, Registration
>>> from pointsman_namesrv.core.name_server import NameServer
>>> core = NameServer(rules=LivenessRules(), first_generation=1, started_at=0.0)
>>> def shown(events): return [event.kind.value for event in events]

A broker registers with all that it has: here one topic with four queues, for reading and writing (6). It gets a
generation, the fence of its heartbeats:

>>> who = BrokerIdentity("c1", "broker-a", 0, "10.0.0.1:10911")
>>> version = DataVersion(0, 0, 1)
>>> has = Registration(identity=who, topics={"orders": QueueConfig(4, 4, 6)}, data_version=version)
>>> registered = core.register(has, now=0.0)
>>> registered.generation, shown(registered.events)
(1, ['REGISTERED', 'TOPICS'])
>>> [str(group.key) for group in core.routes.route("orders").groups]
['c1/broker-a']

Heartbeats say that it lives, and with which topics. A fence of an earlier registration is refused:

>>> def beat(generation, now):
...     return core.beat(who, generation, data_version=version, health=Health(), now=now)
>>> beat(registered.generation, now=30.0).status.value, beat(generation=0, now=30.0).status.value
('OK', 'STALE_GENERATION')

Reading decides nothing. The sweep finds who has been silent: after two and a half intervals a broker is
suspected and stays in the routes, after its expiry it is gone:

>>> shown(core.sweep(now=106.0))
['SUSPECTED']
>>> shown(core.sweep(now=151.0))
['HEARTBEATS', 'EXPIRED']
>>> core.routes.route("orders")
Traceback (most recent call last):
pointsman_namesrv.core.node_refusals.TopicNotFound: no broker has topic orders

It returns by registering again:

>>> shown(core.register(has, now=200.0).events)
['REGISTERED', 'TOPICS']
"""
