"""The name server as a list of facts, written to be obvious and slow. Imports nothing from the core.

``replay`` plays all calls since the start over an empty list, so there is no state that could drift. A call is a
plain dict; an answer is plain data too. Rules: RocketMQ's as the design has them, sections 3 and 5.
"""

from __future__ import annotations

from typing import Any

Call = dict[str, Any]
Fact = dict[str, Any]

GRACE = 10
HAND_OVER = 60


class Model:
    """Everything known, as one fact a broker."""

    def __init__(self, *, started_at: float, first_generation: int) -> None:
        self.started_at = started_at
        self.generation = first_generation
        self.facts: list[Fact] = []

    def holder(self, who: tuple[str, str, int, str]) -> Fact | None:
        return next((f for f in self.facts if f["who"][:3] == who[:3]), None)

    def held(self, who: tuple[str, str, int, str], generation: int) -> Fact | None:
        fact = self.holder(who)
        return fact if fact and fact["who"][3] == who[3] and fact["generation"] == generation else None

    # --- calls ------------------------------------------------------------------------------------------------

    def register(self, call: Call) -> Any:
        who, now = call["who"], call["now"]
        holder = self.holder(who)
        if (
            holder
            and holder["who"][3] != who[3]
            and state(holder) == "UP"
            and call["version"][0] < holder["version"][0]
        ):
            return ("held by", holder["who"][3])
        events: list[Any] = []
        old = next(
            (f for f in self.facts if f["who"][:2] == who[:2] and f["who"][3] == who[3] and f["who"][2] != who[2]), None
        )
        if old:
            self.facts.remove(old)
            events.append(("UNREGISTERED", old["who"], "SUPERSEDED"))
        if old:
            name = "ROLE_CHANGED"
        elif not holder:
            name = "REGISTERED"
        elif holder["who"][3] != who[3]:
            name = "ADDRESS_CHANGED"
        elif (
            holder["incarnation"]
            and call["incarnation"]
            and holder["incarnation"] != call["incarnation"]
            and holder["probe"] != "FAILING"
        ):
            name = "RESTARTED"
        else:
            name = "REREGISTERED"
        events.append(("PROBE_FAILED", who, "PROBE") if call["probe"] == "FAILING" else (name, who, None))
        if holder:
            self.facts.remove(holder)
        fact = {
            **call,
            "generation": self.generation,
            "seen": now,
            "suspect": False,
            "stream": None,
            "broken": None,
            "handed": None,
        }
        self.generation += 1
        self.facts.append(fact)
        return ("registered", fact["generation"], self.told(who), events)

    def beat(self, call: Call) -> Any:
        holder = self.holder(call["who"])
        if not holder:
            return ("UNKNOWN_BROKER", "", (0, "", "", ""), [])
        fact = self.held(call["who"], call["generation"])
        if not fact:
            return ("STALE_GENERATION", holder["who"][3], (0, "", "", ""), [])
        was, gap = state(fact), call["now"] - fact["seen"]
        events: list[Any] = []
        if call["probe"] == "FAILING":
            if was != "PROBE_FAILED":
                events = [("PROBE_FAILED", fact["who"], "PROBE")]
        elif was == "PROBE_FAILED":
            events = [("RECOVERED", fact["who"], "PROBE")]
        elif was == "SUSPECT":
            events = [("RECOVERED", fact["who"], "HEARTBEAT")]
        elif gap > 1.5 * fact["interval"]:
            events = [("LATE_HEARTBEAT", fact["who"], None)]
        fact.update(seen=call["now"], suspect=False, broken=None, probe=call["probe"])
        fact["handed"] = call["now"] if call["hand_over"] else None
        if call["stream"] is not None:
            fact["stream"] = call["stream"]
        status = "OK" if fact["version"] == call["version"] else "TOPICS_OUT_OF_DATE"
        return (status, "", self.told(fact["who"]), events)

    def end_stream(self, call: Call) -> Any:
        fact = self.held(call["who"], call["generation"])
        if not fact or fact["stream"] != call["stream"]:
            return []
        fact["stream"] = None
        if fact["handed"] is not None or call["now"] - fact["seen"] > 1.5 * fact["interval"]:
            return []
        fact["broken"] = call["now"]
        return self.mark(fact, "STREAM_BROKEN")

    def unregister(self, call: Call) -> Any:
        holder = self.holder(call["who"])
        if not holder:
            return ("UNKNOWN_BROKER", "", [])
        fact = self.held(call["who"], call["generation"])
        if not fact:
            return ("STALE_GENERATION", holder["who"][3], [])
        self.facts.remove(fact)
        return ("UNREGISTERED", "", [("UNREGISTERED", fact["who"], "SHUTDOWN")])

    def sweep(self, call: Call) -> Any:
        now, events = call["now"], []
        for fact in sorted(self.facts, key=lambda f: f["seen"]):
            reason = self.over(fact, now)
            if reason:
                self.facts.remove(fact)
                events.append(("EXPIRED", fact["who"], reason))
            elif fact["handed"] is None and fact["broken"] is not None:
                events += self.mark(fact, "STREAM_BROKEN")
            elif fact["handed"] is None and now - fact["seen"] > 2.5 * fact["interval"]:
                events += self.mark(fact, "SILENCE")
        return sorted(events)

    # --- rules ------------------------------------------------------------------------------------------------

    def over(self, fact: Fact, now: float) -> str | None:
        if fact["handed"] is not None:
            return "SILENCE" if now - fact["handed"] > HAND_OVER else None
        if now - fact["seen"] > fact["expiry"]:
            return "SILENCE"
        broken = fact["broken"]
        if broken is not None and broken > self.started_at + fact["expiry"] and now - broken > GRACE:
            return "STREAM_BROKEN"
        return None

    def mark(self, fact: Fact, reason: str) -> list[Any]:
        if fact["suspect"]:
            return []
        fact["suspect"] = True
        return [] if fact["probe"] == "FAILING" else [("SUSPECTED", fact["who"], reason)]

    def group(self, cluster: str, name: str) -> list[Fact]:
        routed = [f for f in self.facts if f["who"][:2] == (cluster, name) and f["probe"] != "FAILING"]
        return sorted(routed, key=lambda f: f["who"][2])

    def told(self, who: tuple[str, str, int, str]) -> Any:
        group = self.group(who[0], who[1])
        if not group:
            return (0, "", "", "")
        first = group[0]["who"]
        is_slave_of_a_living_master = who[2] != 0 and first[2] == 0
        return (first[2], first[3], *((first[3], group[0]["ha"]) if is_slave_of_a_living_master else ("", "")))

    def routes(self) -> dict[str, Any]:
        """Each topic's route: per group its queues and the routed replicas."""
        routes: dict[str, Any] = {}
        for cluster, name in sorted({f["who"][:2] for f in self.facts}):
            group = self.group(cluster, name)
            if not group or (group[0]["who"][2] != 0 and not group[0]["acting"]):
                continue
            for topic, (queues, perm) in group[0]["topics"].items():
                seen_perm = perm if group[0]["who"][2] == 0 else perm & ~2
                replicas = [(f["who"][2], f["who"][3], state(f)) for f in group]
                routes.setdefault(topic, []).append(((cluster, name), (queues, seen_perm), replicas))
        return routes

    def brokers(self) -> list[Any]:
        return sorted((f["who"], state(f), f["generation"]) for f in self.facts)


def state(fact: Fact) -> str:
    if fact["probe"] == "FAILING":
        return "PROBE_FAILED"
    return "SUSPECT" if fact["suspect"] else "UP"


def replay(calls: list[Call]) -> tuple[Model, list[Any]]:
    """Play all calls; the first one is the start."""
    model = Model(started_at=calls[0]["now"], first_generation=calls[0]["first_generation"])
    return model, [getattr(model, call["call"])(call) for call in calls[1:]]
