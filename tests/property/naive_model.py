"""The name server as a list of facts, written to be obvious and slow. Imports nothing from the core.

``replay`` plays all calls since the start over an empty list, so there is no state that could drift. A call is a
plain dict; an answer is plain data too. Rules: RocketMQ's as the design has them, sections 3 and 5.
"""

from __future__ import annotations

from typing import Any

Call = dict[str, Any]
Fact = dict[str, Any]
Who = tuple[str, str, int, str]

GRACE = 10
HAND_OVER = 60
PAUSE = 1.0


class Model:
    """Everything known, as one fact a broker."""

    def __init__(self, *, now: float, first_generation: int, share: float, at_least: int, limit: float) -> None:
        self.lenient_since = now
        self.generation = first_generation
        self.share, self.at_least, self.limit = share, at_least, limit
        self.facts: list[Fact] = []
        self.gone: list[Fact] = []
        self.guards: dict[str, Fact] = {}
        self.windows: dict[tuple[str, str], float] = {}
        self.wipes: dict[tuple[str, str], str] = {}
        self.tombstones: list[tuple[tuple[str, str], str, Any]] = []
        self.orders: dict[str, str] = {}

    def holder(self, who: Who) -> Fact | None:
        return next((f for f in self.facts if f["who"][:3] == who[:3]), None)

    def held(self, who: Who, generation: int) -> Fact | None:
        fact = self.holder(who)
        return fact if fact and fact["who"][3] == who[3] and fact["generation"] == generation else None

    # --- calls of brokers -------------------------------------------------------------------------------------

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
        if holder:
            self.facts.remove(holder)
        fact = new_fact(call, self.generation, known=holder["known"] if holder else self.back(who, now))
        self.generation += 1
        self.facts.append(fact)
        was_wiped = self.wipes.get(who[:2], "")
        next_process = who[2] == 0 and was_wiped and call["incarnation"] not in ("", was_wiped)
        if next_process:
            del self.wipes[who[:2]]
        if call["probe"] == "FAILING":
            fact["failing"] = holder["failing"] if holder and holder["failing"] is not None else now
            events += self.fail(fact, now)
        self.end_tombstones(fact)
        name = name_of(call, holder, old)
        says = ("version", "interval", "expiry", "acting", "incarnation", "ha", "zone", "topics")
        says_nothing_new = (
            holder
            and name == "REREGISTERED"
            and state(holder) == state(fact) == "UP"
            and all(call[field] == holder[field] for field in says)
        )
        if not says_nothing_new:
            events.append(told(fact, name, None))
        if next_process:
            events.append(("PERM_CHANGED", who[:2], "INCARNATION"))
        return ("registered", fact["generation"], self.view(who), events)

    def back(self, who: Who, now: float) -> float:
        """Since when a position is known that is held again: it is gone no more."""
        gone = next((g for g in self.gone if g["who"][:3] == who[:3]), None)
        if gone is None:
            return now
        self.gone.remove(gone)
        known: float = gone["known"]
        return known

    def restore(self, call: Call) -> Any:
        who = call["who"]
        if self.holder(who) or any(f["who"][:2] == who[:2] and f["who"][3] == who[3] for f in self.facts):
            return None
        fact = new_fact(call, call["generation"], known=call["now"] - call["expiry"])
        fact["provisional"] = True
        if call["probe"] == "FAILING":
            fact.update(failing=call["now"] - 2 * call["expiry"], out=True)
        self.facts.append(fact)
        self.generation += 1
        return None

    def restore_overrides(self, call: Call) -> Any:
        self.wipes, self.tombstones = dict(call["wipes"]), list(call["tombstones"])

    def update(self, call: Call) -> Any:
        if not self.holder(call["who"]):
            return "BROKER_UNKNOWN"
        fact = self.held(call["who"], call["generation"])
        if not fact:
            return "STALE_GENERATION"
        if fact["version"] != call["base"]:
            return "STALE_DATA_VERSION"
        if not all(topic in fact["topics"] for topic in call["removed"]):
            return "INVALID_REQUEST"
        topics = {topic: queues for topic, queues in fact["topics"].items() if topic not in call["removed"]}
        fact["topics"], fact["version"] = {**topics, **call["changed"]}, call["version"]
        self.end_tombstones(fact)
        return len(fact["topics"])

    def beat(self, call: Call) -> Any:
        holder, now = self.holder(call["who"]), call["now"]
        if not holder:
            return ("UNKNOWN_BROKER", "", (0, "", "", ""), [])
        fact = self.held(call["who"], call["generation"])
        if not fact:
            return ("STALE_GENERATION", holder["who"][3], (0, "", "", ""), [])
        fails, failed = call["probe"] == "FAILING", fact["probe"] == "FAILING"
        events: list[Any] = []
        if fact["provisional"]:
            heard = ("REREGISTERED", fact["who"], "SNAPSHOT")
            events = [told(fact, *heard[::2]) if fails else heard]
        elif failed and not fails:
            events = [("RECOVERED", fact["who"], "PROBE")]
        elif fact["suspect"] and not fails:
            events = [("RECOVERED", fact["who"], "HEARTBEAT")]
        elif not fails and silence(fact, now) > 1.5 * fact["interval"]:
            events = [("LATE_HEARTBEAT", fact["who"], None)]
        fact.update(seen=now, excused=0.0, suspect=False, broken=None, probe=call["probe"], provisional=False)
        fact["handed"] = now if call["hand_over"] else None
        if call["stream"] is not None:
            fact["stream"] = call["stream"]
        if not fails:
            fact.update(failing=None, out=False, protected=None)
            if failed and fact["who"][2] == 0:
                self.end_tombstones(fact)
        elif not failed:
            fact["failing"] = now
            events += self.fail(fact, now)
            events.append(told(fact, "SUSPECTED", "PROBE"))
        status = "OK" if fact["version"] == call["version"] else "TOPICS_OUT_OF_DATE"
        return (status, "", self.view(fact["who"]), events)

    def end_stream(self, call: Call) -> Any:
        fact = self.held(call["who"], call["generation"])
        if not fact or fact["stream"] != call["stream"]:
            return []
        fact["stream"] = None
        if call["by_us"] or fact["handed"] is not None or silence(fact, call["now"]) > 1.5 * fact["interval"]:
            return []
        if call["now"] - self.lenient_since <= fact["expiry"]:
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
        self.remove(fact, call["now"], lost=False)
        return ("UNREGISTERED", "", [("UNREGISTERED", fact["who"], "SHUTDOWN")])

    def report_queue_stats(self, call: Call) -> Any:
        holder = self.holder(call["who"])
        if not holder:
            return ("UNKNOWN_BROKER", "", [])
        if not self.held(call["who"], call["generation"]):
            return ("STALE_GENERATION", holder["who"][3], [])
        return ("RECORDED", "", [("QUEUE_STATS", call["who"], None)])

    # --- calls of operators -----------------------------------------------------------------------------------

    def evict(self, call: Call) -> Any:
        fact = self.holder(call["who"])
        if not fact:
            return "BROKER_UNKNOWN"
        self.remove(fact, call["now"], lost=False)
        return [("UNREGISTERED", fact["who"], "ADMIN")]

    def set_writable(self, call: Call) -> Any:
        key = call["key"]
        # A wipe outlives the group's absence, and can be taken back in it.
        if key not in self.wipes and not any(f["who"][:2] == key for f in self.facts):
            return "BROKER_UNKNOWN"
        if call["writable"] is (key not in self.wipes):
            return False
        if call["writable"]:
            del self.wipes[key]
        else:
            master = self.holder((*key, 0, ""))
            self.wipes[key] = master["incarnation"] if master else ""
        return True

    def hide_topic(self, call: Call) -> Any:
        topic, cluster = call["topic"], call["cluster"]
        keys = [key for key, _, _ in self.routes(cluster).get(topic, [])]
        for key in keys:
            brings = self.brings(key)
            assert brings is not None
            self.tombstones = [t for t in self.tombstones if t[:2] != (key, topic)]
            self.tombstones.append((key, topic, brings["version"]))
        return keys or "TOPIC_NOT_FOUND"

    def order_topic(self, call: Call) -> Any:
        self.orders[call["topic"]] = call["conf"]

    def open_window(self, call: Call) -> Any:
        self.windows[call["key"]] = call["until"]

    def close_window(self, call: Call) -> Any:
        return self.windows.pop(call["key"], None) is not None

    def set_guard(self, call: Call) -> Any:
        guard = self.guard(call["cluster"])
        guard["mode"], guard["until"] = call["mode"], None if call["mode"] == "AUTO" else call["until"]
        if call["mode"] == "OFF":
            guard["released"] = None
        return self.turn(call["cluster"], "ADMIN", call["now"])

    # --- what time does ---------------------------------------------------------------------------------------

    def sweep(self, call: Call) -> Any:
        now = call["now"]
        over = [key for key, until in self.windows.items() if until <= now]
        events: list[Any] = [("MAINTENANCE_OFF", key, "TIME_OVER") for key in over]
        for key in over:
            del self.windows[key]
        events += self.judge(now)
        for fact in sorted(self.facts, key=lambda f: f["seen"]):
            reason = self.over(fact, now)
            if reason:
                events += self.lose(fact, reason, now)
            elif fact["protected"] == "PROBE":
                events += self.let_failing_go(fact, now)
            elif fact["handed"] is None and fact["broken"] is not None:
                events += self.mark(fact, "STREAM_BROKEN")
            elif fact["handed"] is None and silence(fact, now) > 2.5 * fact["interval"]:
                events += self.mark(fact, "SILENCE")
        for fact in self.facts:
            if fact["out"] and fact["announced"] and not self.is_covered(fact, now):
                fact["announced"] = False
                events.append(told(fact, "SUSPECTED", "PROBE"))
        return sorted(events, key=repr)

    def excuse(self, call: Call) -> Any:
        now, seconds = call["now"], call["seconds"]
        for fact in self.facts:
            fact["excused"] += min(seconds, now - fact["seen"])
            for since in ("broken", "handed"):
                if fact[since] is not None:
                    fact[since] += min(seconds, now - fact[since])
        for guard in self.guards.values():
            if guard["released"] is not None:
                guard["released"] += seconds
        if seconds < PAUSE:
            return []
        self.lenient_since = now
        return [("NAMESRV_PAUSED", None, None)]

    def over(self, fact: Fact, now: float) -> str | None:
        if fact["handed"] is not None:
            return "SILENCE" if now - fact["handed"] > HAND_OVER else None
        if silence(fact, now) > fact["expiry"]:
            return "SILENCE"
        broken = fact["broken"]
        if broken is not None and broken > self.lenient_since + fact["expiry"] and now - broken > GRACE:
            return "STREAM_BROKEN"
        return None

    def mark(self, fact: Fact, reason: str) -> list[Any]:
        if fact["suspect"] or fact["provisional"]:
            return []
        fact["suspect"] = True
        return [("SUSPECTED", fact["who"], reason)] if is_routed(fact) else []

    def lose(self, fact: Fact, reason: str, now: float) -> list[Any]:
        if self.is_covered(fact, now):
            self.remove(fact, now, lost=False)
            return [("UNREGISTERED", fact["who"], "MAINTENANCE")]
        if self.keeps(fact, now):
            if is_routed(fact) and not fact["protected"]:
                fact.update(protected=reason, provisional=False)
            return []
        self.remove(fact, now, lost=True)
        return [("EXPIRED", fact["who"], reason)]

    def fail(self, fact: Fact, now: float) -> list[Any]:
        """A probe begins to fail: the guard counts at once if this one could turn it on."""
        events: list[Any] = []
        fact["protected"] = None
        if not self.is_covered(fact, now):
            guard = self.guard(fact["who"][0])
            if guard["since"] is None and guard["mode"] == "AUTO":
                guard["lost"] += 1
                if self.wants(guard):
                    events = self.judge(now)
        if self.keeps(fact, now) and not self.is_covered(fact, now):
            fact["protected"] = "PROBE"
        else:
            fact.update(out=True, announced=self.is_covered(fact, now))
        return events

    def let_failing_go(self, fact: Fact, now: float) -> list[Any]:
        if self.keeps(fact, now) and not self.is_covered(fact, now):
            return []
        was_told = fact["out"]
        fact.update(protected=None, out=True, announced=self.is_covered(fact, now))
        return [] if was_told else [told(fact, "SUSPECTED", "PROBE")]

    def remove(self, fact: Fact, now: float, *, lost: bool) -> None:
        self.facts.remove(fact)
        self.gone.append({**fact, "at": now, "lost": lost, "was_long_out": is_long_out(fact, now)})

    # --- the guard --------------------------------------------------------------------------------------------

    def guard(self, cluster: str) -> Fact:
        new = {"mode": "AUTO", "until": None, "since": None, "released": None, "overdue": False, "lost": 0, "lived": 0}
        return self.guards.setdefault(cluster, new)

    def is_covered(self, fact: Fact, now: float) -> bool:
        keys = (fact["who"][:2], (fact["who"][0], ""))
        return any(now < self.windows.get(key, now) for key in keys)

    def judge(self, now: float) -> list[Any]:
        """Count each cluster anew; a guard that turns on puts back what it keeps."""
        events: list[Any] = []
        for cluster in {f["who"][0] for f in self.facts + self.gone} | self.guards.keys():
            guard = self.guard(cluster)
            here = [f for f in self.facts if f["who"][0] == cluster]
            lost = [f for f in here if is_lost(f, now) and not self.is_covered(f, now)]
            gone = [g for g in self.gone if g["who"][0] == cluster and now - g["at"] <= g["expiry"]]
            guard["lost"] = len(lost) + sum(g["lost"] and not g["was_long_out"] for g in gone)
            old = [f for f in here if not is_long_out(f, now)] + [g for g in gone if not g["was_long_out"]]
            guard["lived"] = sum(f["known"] <= now - f["expiry"] for f in old)
            reason = "SHARE"
            if guard["until"] is not None and now > guard["until"]:
                guard.update(mode="AUTO", until=None)
                reason = "TIME_OVER"
            turned = self.turn(cluster, reason, now)
            if reason == "TIME_OVER" and not turned:
                name = "GUARD_ON" if guard["since"] is not None else "GUARD_OFF"
                turned = [(name, (cluster, ""), reason, guard["lost"], guard["lived"])]
            events += turned
        self.gone = [g for g in self.gone if now - g["at"] <= g["expiry"]]
        if any(event[0] == "GUARD_ON" for event in events):
            for fact in self.facts:
                is_out = fact["failing"] is not None and not is_routed(fact) and not is_long_out(fact, now)
                if is_out and self.keeps(fact, now) and not self.is_covered(fact, now):
                    fact["protected"] = "PROBE"
        return events

    def wants(self, guard: Fact) -> bool:
        if guard["mode"] != "AUTO":
            return bool(guard["mode"] == "HOLD")
        return bool(guard["lost"] >= self.at_least and guard["lost"] > self.share * guard["lived"])

    def turn(self, cluster: str, reason: str, now: float) -> list[Any]:
        guard = self.guard(cluster)
        counted = (guard["lost"], guard["lived"])
        if self.wants(guard) and guard["since"] is None:
            guard.update(since=now, released=None, overdue=False)
            return [("GUARD_ON", (cluster, ""), reason, *counted)]
        if not self.wants(guard) and guard["since"] is not None:
            guard.update(since=None, released=None if guard["mode"] == "OFF" else now, overdue=False)
            return [("GUARD_OFF", (cluster, ""), reason, *counted)]
        if guard["since"] is not None and not guard["overdue"] and now - guard["since"] > self.limit:
            guard["overdue"] = True
            return [("GUARD_ON", (cluster, ""), "LIMIT", *counted)]
        return []

    def keeps(self, fact: Fact, now: float) -> bool:
        """While it is on, all. After a release whoever was quiet by then has two and a half intervals, whoever failed
        and was kept has one.
        """
        guard = self.guard(fact["who"][0])
        if guard["since"] is not None:
            return True
        if guard["released"] is None:
            return False
        if fact["failing"] is not None:
            return bool(fact["protected"] and now - guard["released"] <= fact["interval"])
        quiet_since = fact["seen"] if fact["broken"] is None else fact["broken"]
        return bool(quiet_since <= guard["released"] and now - guard["released"] <= 2.5 * fact["interval"])

    # --- what is seen -----------------------------------------------------------------------------------------

    def group(self, cluster: str, name: str) -> list[Fact]:
        routed = [f for f in self.facts if f["who"][:2] == (cluster, name) and is_routed(f)]
        return sorted(routed, key=lambda f: f["who"][2])

    def view(self, who: Who) -> Any:
        """What a member is told of its group."""
        group = self.group(who[0], who[1])
        if not group:
            return (0, "", "", "")
        first = group[0]["who"]
        is_slave_of_a_living_master = who[2] != 0 and first[2] == 0
        return (first[2], first[3], *((first[3], group[0]["ha"]) if is_slave_of_a_living_master else ("", "")))

    def brings(self, key: tuple[str, str]) -> Fact | None:
        """Whose topics are the group's."""
        group = self.group(*key)
        return group[0] if group and (group[0]["who"][2] == 0 or group[0]["acting"]) else None

    def end_tombstones(self, fact: Fact) -> None:
        key = fact["who"][:2]
        if self.brings(key) is fact:
            self.tombstones = [t for t in self.tombstones if t[0] != key or t[2] == fact["version"]]

    def routes(self, cluster: str = "", zone: str = "") -> dict[str, Any]:
        """Each topic's route: per group its queues and the routed replicas."""
        routes: dict[str, Any] = {}
        for key in sorted({f["who"][:2] for f in self.facts if not cluster or f["who"][0] == cluster}):
            brings = self.brings(key)
            if brings is None:
                continue
            is_far = bool(zone) and brings["who"][2] == 0 and brings["zone"] != zone
            for topic, (queues, perm) in brings["topics"].items():
                if (key, topic, brings["version"]) in self.tombstones:
                    continue
                route = routes.setdefault(topic, [])
                seen_perm = perm if brings["who"][2] == 0 and key not in self.wipes else perm & ~2
                replicas = [(f["who"][2], f["who"][3], state(f)) for f in self.group(*key)]
                if not is_far:
                    route.append((key, (queues, seen_perm), replicas))
        return routes

    def brokers(self) -> list[Any]:
        return sorted((f["who"], state(f), f["generation"]) for f in self.facts)

    def guard_seen(self, cluster: str) -> Any:
        guard = self.guard(cluster)
        return (guard["mode"], guard["since"] is not None, guard["lost"], guard["lived"], guard["overdue"])


def new_fact(call: Call, generation: int, *, known: float) -> Fact:
    nothing = {"suspect": False, "stream": None, "broken": None, "handed": None, "excused": 0.0, "failing": None}
    quiet = {"out": False, "announced": False, "protected": None, "provisional": False}
    return {**call, **nothing, **quiet, "generation": generation, "seen": call["now"], "known": known}


def name_of(call: Call, holder: Fact | None, old: Fact | None) -> str:
    """What a registration is to the history."""
    if old:
        return "ROLE_CHANGED"
    if not holder:
        return "REGISTERED"
    if holder["who"][3] != call["who"][3]:
        return "ADDRESS_CHANGED"
    before, after = holder["incarnation"], call["incarnation"]
    return "RESTARTED" if before and after and before != after and is_routed(holder) else "REREGISTERED"


def told(fact: Fact, name: str, reason: str | None) -> Any:
    """What is out of the routes for its probe is out, whatever it did."""
    if fact["failing"] is None or not fact["out"]:
        return (name, fact["who"], reason)
    if fact["announced"]:
        return ("UNREGISTERED", fact["who"], "MAINTENANCE")
    return ("PROBE_FAILED", fact["who"], "PROBE")


def silence(fact: Fact, now: float) -> float:
    return float(now - fact["seen"] - fact["excused"])


def is_routed(fact: Fact) -> bool:
    return fact["probe"] != "FAILING" or fact["protected"] is not None


def is_long_out(fact: Fact, now: float) -> bool:
    """Failing since before the window began, and not kept: it did not live then, so it cannot be lost in it."""
    return not fact["protected"] and fact["failing"] is not None and now - fact["failing"] > fact["expiry"]


def is_lost(fact: Fact, now: float) -> bool:
    if fact["protected"]:
        return True
    if fact["failing"] is not None:
        return not is_long_out(fact, now)
    if fact["broken"] is not None:
        return True
    if fact["handed"] is not None:
        return bool(now - fact["handed"] > HAND_OVER)
    return bool(silence(fact, now) > 2.5 * fact["interval"])


def state(fact: Fact) -> str:
    if not is_routed(fact):
        return "PROBE_FAILED"
    if fact["protected"]:
        return "PROTECTED"
    if fact["provisional"]:
        return "PROVISIONAL"
    return "SUSPECT" if fact["suspect"] else "UP"


def replay(calls: list[Call]) -> tuple[Model, list[Any]]:
    """Play all calls; the first one is the start."""
    model = Model(**calls[0])
    return model, [getattr(model, call["call"])(call) for call in calls[1:]]
