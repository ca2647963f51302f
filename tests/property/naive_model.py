"""An oracle for the name server: states are formulas over the list of what happened. Imports nothing from the core.

Liveness, the table of states and the guard are computed from the signs of each position (its registrations, heartbeats,
ends of streams and departures), the pauses and the windows. Results are stored only where the rules say "as last
applied": a replica's state, and a guard's counts and period at its last judgement. Topics, wipes, deletions and routes
are plain tables (``naive_tables``). A call is a plain dict; an answer is plain data too.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import takewhile
from math import inf
from typing import Any

from tests.property.naive_tables import ROUTED, At, Call, Fact, Tables, name_of

State = tuple[str, str | None, bool]

GRACE = 10
HAND_OVER = 60
PAUSE = 1.0
LATE, SILENT = 1.5, 2.5
"""Intervals."""
EVENT_OF = {"OUT": "PROBE_FAILED", "PROTECTED": "PROTECTED", "SUSPECT": "SUSPECTED", "UP": "RECOVERED"}
DECLARED = ("version", "interval", "expiry", "acting", "incarnation", "ha", "zone", "topics")


class Oracle(Tables):
    """The list of what happened, and what follows from it."""

    def __init__(
        self, *, now: float, first_generation: int, share: float, at_least: int, limit: float, enabled: bool
    ) -> None:
        super().__init__()
        self.started_at, self.generation = now, first_generation
        self.share, self.at_least, self.limit, self.enabled = share, at_least, limit, enabled
        self.signs: dict[At, list[Fact]] = defaultdict(list)
        self.pauses: list[tuple[float, float]] = []
        self.guards: dict[str, Fact] = {}
        self.windows: dict[tuple[str, str], float] = {}
        self.lost: dict[At, Fact] = {}
        """The brokers that expired and are not back."""

    # --- one replica: formulas over its signs -----------------------------------------------------------------

    def lenient_since(self) -> float:
        return max([self.started_at, *(end for begin, end in self.pauses if end - begin >= PAUSE)])

    def elapsed(self, since: float, now: float) -> float:
        """Seconds of which this server itself was not paused."""
        return now - since - sum(max(0.0, end - max(begin, since)) for begin, end in self.pauses)

    def last_heartbeat(self, at: At) -> Fact:
        return next(sign for sign in reversed(self.signs[at]) if sign["call"] != "end_stream")

    def silent_for(self, at: At, now: float) -> float:
        """Intervals since the last heartbeat."""
        return float(self.elapsed(self.last_heartbeat(at)["now"], now) / self.held[at]["interval"])

    def handed_over(self, at: At) -> bool:
        return bool(self.last_heartbeat(at).get("hand_over"))

    def stream(self, at: At) -> int | None:
        """The stream that the latest heartbeat of this registration with a stream named, unless it ended."""
        for sign in reversed(self.signs[at]):
            if sign["call"] in {"register", "restore"}:
                return None
            if sign["stream"] is not None:
                return None if sign["call"] == "end_stream" else int(sign["stream"])
        raise AssertionError

    def broken_at(self, at: At) -> float | None:
        ends = takewhile(lambda sign: sign["call"] == "end_stream", reversed(self.signs[at]))
        return next((end["now"] for end in ends if end["counts"]), None)

    def failing_run(self, at: At) -> list[Fact]:
        """The signs with failing verdicts after the last with another verdict, or after the last departure."""
        verdicts = (sign for sign in reversed(self.signs[at]) if sign["call"] != "end_stream")
        return list(takewhile(lambda sign: sign.get("probe") == "FAILING", verdicts))

    def evidence(self, at: At) -> str | None:
        run = self.failing_run(at)
        return ("STRONG" if any(sign["evidence"] == "STRONG" for sign in run) else "WEAK") if run else None

    def failing_since(self, at: At) -> float:
        """When its uninterrupted run of failing verdicts began; not in a snapshot, so it counts as long ago."""
        first = self.failing_run(at)[-1]
        return -inf if first["call"] == "restore" else first["now"]

    def alive_since(self, at: At) -> float | None:
        """When the position was first alive, as far back as its departures are remembered."""
        first = next((sign for sign in self.signs[at] if sign.get("shows_life")), None)
        return None if first is None else float(first["now"] - first["before"])

    def expired(self, at: At, now: float) -> str | None:
        last, expiry, broken = self.last_heartbeat(at)["now"], self.held[at]["expiry"], self.broken_at(at)
        if self.handed_over(at):
            return "SILENCE" if self.elapsed(last, now) > HAND_OVER else None
        if broken and broken > self.lenient_since() + expiry and self.elapsed(broken, now) > GRACE:
            return "STREAM_BROKEN"
        return "SILENCE" if self.elapsed(last, now) > expiry else None

    def suspect(self, at: At, now: float) -> str | None:
        if self.handed_over(at):
            return None
        return "STREAM_BROKEN" if self.broken_at(at) else "SILENCE" if self.silent_for(at, now) > SILENT else None

    def is_covered(self, at: At, now: float) -> bool:
        return any(now < self.windows.get(key, now) for key in (at[:2], (at[0], "")))

    def table(self, at: At, now: float) -> State:
        expired, failing, suspect = self.expired(at, now), self.evidence(at), self.suspect(at, now)
        covered, kept = self.is_covered(at, now), self.keeps(at, now)
        if expired:
            return ("GONE", expired, True) if covered else ("PROTECTED" if kept else "GONE", expired, False)
        if failing == "STRONG":
            return ("OUT", "REFUSED", covered)
        if failing == "WEAK":
            return ("PROTECTED", "PROBE", False) if kept else ("OUT", "PROBE", covered)
        if self.last_heartbeat(at)["call"] == "restore":
            return ("PROVISIONAL", "SNAPSHOT", False)
        return ("SUSPECT", suspect, False) if suspect else ("UP", None, False)

    # --- the guard: formulas over the replicas and departures of a cluster ----------------------------------------

    def guard(self, cluster: str) -> Fact:
        new = {"mode": "AUTO", "until": None, "edge": None, "ended": None, "overdue": False, "counts": (0, 0, 0, 0)}
        return self.guards.setdefault(cluster, new | {"counted_to": -inf, "failures": 0})

    def edge(self, cluster: str, now: float) -> float:
        """The end of the window: frozen while the guard is on."""
        edge = self.guard(cluster)["edge"]
        return now if edge is None else float(edge)

    def is_set_aside(self, at: At, now: float, edge: float) -> bool:
        failing, begin = self.evidence(at), edge - self.held[at]["expiry"]
        if (self.is_covered(at, now) or self.held[at].get("was_covered")) and self.is_lost(at, now):
            return True
        is_old_failure = failing and (self.alive_since(at) is None or self.failing_since(at) < begin)
        return bool(failing == "STRONG" or is_old_failure)

    def is_lost(self, at: At, now: float) -> bool:
        if self.handed_over(at):
            return bool(self.failing_run(at)) or self.expired(at, now) is not None
        return bool(self.failing_run(at)) or self.suspect(at, now) is not None

    def count(self, cluster: str, now: float) -> tuple[int, int, int, int]:
        """Lost, baseline, up, and how many were counted that are registered."""
        edge = self.edge(cluster, now)
        here = [at for at in self.held if at[0] == cluster and not self.is_set_aside(at, now, edge)]
        lost = [at for at in here if self.is_lost(at, now)]
        up = [at for at in here if at not in lost and self.last_heartbeat(at)["call"] != "restore"]
        departed = [at for at in self.departed(cluster, edge) if self.signs[at][-1]["is_lost"]]
        begins = {at: edge - self.signs[at][-1]["expiry"] for at in departed}
        begins |= {at: edge - self.held[at]["expiry"] for at in here}
        since = {at: self.alive_since(at) for at in begins}
        baseline = sum(begin >= (inf if since[at] is None else since[at]) for at, begin in begins.items())
        return len(lost) + len(departed), baseline, len(up), len(here)

    def departed(self, cluster: str, edge: float) -> list[At]:
        """The vacant positions whose departure is remembered."""
        ends = [(at, signs[-1]) for at, signs in self.signs.items() if at[0] == cluster and at not in self.held]
        return [at for at, end in ends if end["now"] >= edge - end["expiry"]]

    def should_turn_on(self, cluster: str, *, more: int = 0) -> bool:
        guard = self.guard(cluster)
        lost, baseline, up, present = guard["counts"]
        is_share = lost + more > self.share * baseline and max(0, up - more) < (1 - self.share) * baseline
        return bool(guard["mode"] == "AUTO" and self.enabled and present and lost + more >= self.at_least and is_share)

    def keeps(self, at: At, now: float) -> bool:
        guard, failing = self.guard(at[0]), self.evidence(at)
        is_excused = self.is_covered(at, now) or self.held[at].get("was_covered")
        if is_excused or failing == "STRONG" or (guard["edge"] is None and guard["ended"] is None):
            return False
        edge, released = (guard["edge"], inf) if guard["edge"] is not None else guard["ended"]
        rest = 0.0 if guard["edge"] is not None else self.elapsed(released, now) / self.held[at]["interval"]
        if failing:
            begin = edge - self.held[at]["expiry"]
            return self.alive_since(at) is not None and begin <= self.failing_since(at) <= released and rest <= 1
        quiet_since = self.broken_at(at) or self.last_heartbeat(at)["now"]
        return bool(quiet_since <= released and rest <= SILENT)

    def judge(self, now: float) -> list[Any]:
        events: list[Any] = []
        for at, fact in self.held.items():
            fact["was_covered"] = fact.get("was_covered") or (self.is_covered(at, now) and self.is_lost(at, now))
        for cluster in {at[0] for at in self.signs} | self.guards.keys():
            guard = self.guard(cluster)
            guard.update(counts=self.count(cluster, now), counted_to=self.edge(cluster, now), failures=0)
            is_over = guard["until"] is not None and now > guard["until"]
            if is_over:
                guard.update(mode="AUTO", until=None)
            reason = "TIME_OVER" if is_over else "SHARE"
            turned = self.decide(cluster, reason, now, is_new_mode=is_over)
            kind = "GUARD_OFF" if guard["edge"] is None else "GUARD_ON"
            events += turned or [self.guard_event(kind, cluster, reason)] * is_over
            if not any(at[0] == cluster for at in self.held):
                guard["ended"] = None
        return events

    def decide(self, cluster: str, reason: str, now: float, *, is_new_mode: bool) -> list[Any]:
        """Turn the guard on or off as its mode, or else its counts, require."""
        guard = self.guard(cluster)
        _, baseline, up, present = guard["counts"]
        was_on = guard["edge"] is not None
        stays = was_on and not is_new_mode and present and up < (1 - self.share) * baseline
        is_on = guard["mode"] == "HOLD" or (guard["mode"] == "AUTO" and (stays or self.should_turn_on(cluster)))
        seconds = now - guard["edge"] if was_on else 0.0
        if is_on and not was_on:
            guard.update(edge=now, ended=None)
            return [self.guard_event("GUARD_ON", cluster, reason)]
        if was_on and not is_on:
            guard.update(edge=None, ended=None if guard["mode"] == "OFF" else (guard["edge"], now), overdue=False)
            return [self.guard_event("GUARD_OFF", cluster, reason, seconds)]
        if was_on and not guard["overdue"] and seconds > self.limit:
            guard["overdue"] = True
            return [self.guard_event("GUARD_ON", cluster, "LIMIT", seconds)]
        return []

    def guard_event(self, kind: str, cluster: str, reason: str, seconds: float = 0.0) -> Any:
        return (kind, (cluster, ""), reason, *self.guard(cluster)["counts"][:3], seconds)

    # --- registrations of one address -------------------------------------------------------------------------

    def is_healthy(self, at: At, now: float) -> bool:
        return not self.handed_over(at) and self.suspect(at, now) is None

    def is_heard(self, at: At, now: float) -> bool:
        return self.is_healthy(at, now) and self.last_heartbeat(at)["call"] != "restore"

    def ends(self, at: At, other: Fact, now: float) -> bool:
        """Whether a registration ends because another one that is heard has its address."""
        shares, process = self.held[at]["shares"], (self.held[at]["incarnation"], other["incarnation"])
        if self.is_healthy(at, now):
            is_alone = shares is None
            is_new = self.last_heartbeat(at)["call"] == "restore"
            return is_new and (is_alone or (process[0] == process[1] != ""))
        were_both_heard = shares is not None and (
            self.last_heartbeat(at)["now"] - shares > SILENT * self.held[at]["interval"]
        )
        return not (were_both_heard and "" not in process and process[0] != process[1])

    def at_addr(self, addr: str) -> list[At]:
        return [at for at, fact in self.held.items() if fact["who"][3] == addr]

    def mark_shared(self, now: float) -> list[Fact]:
        """Note since when registrations share an address; return those that do from now on."""
        begun = []
        for fact in self.held.values():
            is_shared = len(self.at_addr(fact["who"][3])) > 1
            if is_shared and fact["shares"] is None:
                begun.append(fact)
            fact["shares"] = (now if fact["shares"] is None else fact["shares"]) if is_shared else None
        return begun

    def supersede(self, ends: list[At], now: float) -> list[Any]:
        events: list[Any] = []
        for at in ends:
            events += self.apply(at, now, ("GONE", "SUPERSEDED", True), ("UNREGISTERED", "SUPERSEDED"))
        return events

    def end_superseded(self, addr: str, now: float) -> list[Any]:
        """End those that are no longer heard, while another one at the address is."""
        here = self.at_addr(addr)
        heard = [self.held[at] for at in here if self.is_heard(at, now)]
        lost = [at for at in here if not self.is_heard(at, now)]
        return self.supersede([at for at in lost if any(self.ends(at, fact, now) for fact in heard)], now)

    # --- where states are applied -----------------------------------------------------------------------------

    def apply(self, at: At, now: float, state: State | None = None, row: tuple[str, str | None] | None = None) -> Any:
        """Store a replica's state and return the rows: ``row`` if the call has its own, else that of the transition."""
        fact, before, ended = self.held[at], self.held[at]["state"], []
        after = state or self.table(at, now)
        if after[0] == "GONE":
            ended = self.end_wipe(fact, recovered=bool(self.failing_run(at)), left=after[1])
            is_lost = state is None and not after[2] and not self.is_set_aside(at, now, self.edge(at[0], now))
            row = row or ("EXPIRED", after[1])
            self.signs[at].append({"call": "left", "now": now, "expiry": fact["expiry"], "is_lost": is_lost})
            del self.held[at]
            self.lost.pop(at, None)
            if row[0] == "EXPIRED":
                self.lost[at] = {"who": fact["who"], "state": after, "since": None}
            self.mark_shared(now)
        if before is None or before[0] != after[0]:
            fact["since"] = now
        fact["state"] = after
        fact["was_covered"] = fact.get("was_covered") or after[2]
        if row is None and before != after:
            row = (EVENT_OF[after[0]], after[1])
        return [self.event(fact, *row, now), *ended] if row else []

    @staticmethod
    def event(fact: Fact, kind: str, reason: str | None, now: float) -> Any:
        phase, _, planned = fact["state"]
        return (kind, fact["who"], reason, phase, planned, None if fact["since"] is None else now - fact["since"])

    def record(self, call: Call, *, before: float = 0.0) -> list[Any]:
        """Add a registration or heartbeat to the signs; the guard is judged if a probe begins to fail weakly.

        ``before``: how long ago the broker was alive if this is the first sign that shows it.
        """
        at, now = call["who"][:3], call["now"]
        shows_life = call["probe"] != "FAILING" or (call["call"] == "register" and call["ever_passed"] is not False)
        self.signs[at].append({**call, "shows_life": shows_life, "before": before})
        self.held[at]["was_covered"] = bool(self.held[at].get("was_covered") and call["probe"] == "FAILING")
        guard = self.guard(at[0])
        if len(self.failing_run(at)) != 1 or self.evidence(at) != "WEAK" or self.is_covered(at, now) or guard["edge"]:
            return []
        guard["failures"] += 1
        return self.judge(now) if self.should_turn_on(at[0], more=guard["failures"]) else []

    # --- calls of brokers -------------------------------------------------------------------------------------

    def answer(self, call: Call) -> Any:
        """Record a call and return the expected result of the core."""
        return getattr(self, call["call"])(call)

    def register(self, call: Call) -> Any:
        who, now, at = call["who"], call["now"], call["who"][:3]
        holder = self.held.get(at)
        is_other = holder and holder["who"][3] != who[3] and holder["state"][0] == "UP"
        if holder and is_other and call["version"][0] < holder["version"][0]:
            return ("held by", holder["who"][3])
        events: list[Any] = []
        moved = [a for a, f in self.held.items() if f["who"][:2] == who[:2] and f["who"][3] == who[3] and a != at]
        if not holder or holder["who"][3] != who[3]:
            others = [a for a in self.at_addr(who[3]) if a[:2] != who[:2]]
            moved_here = [a for a in others if self.ends(a, call, now)]
            events += self.supersede(moved_here, now)
        events += self.supersede(moved, now)
        if not holder and at not in self.departed(at[0], self.guard(at[0])["counted_to"]):
            self.signs[at].clear()
        was = holder and holder["state"]
        fact = {**call, "generation": self.generation, "state": was, "since": holder and holder["since"]}
        fact["was_covered"] = holder and holder["was_covered"]
        self.lost.pop(at, None)
        fact["shares"] = holder["shares"] if holder and holder["who"][3] == who[3] else None
        self.held[at] = fact
        sharing = self.mark_shared(now)
        self.generation += 1
        recovered = bool(holder and self.failing_run(at)) and call["probe"] != "FAILING"
        ended = self.end_wipe(fact, recovered=recovered)
        if who[:2] in self.wipes and who[2] == 0 and call["probe"] != "FAILING":
            self.wipes[who[:2]] = call["incarnation"]
        events += self.record(call, before=0.0 if holder or not call["warming"] else call["expiry"])
        name = "ROLE_CHANGED" if moved else name_of(call, holder)
        self.apply(at, now)
        self.end_tombstones(at)
        is_same = holder and name == "REREGISTERED" and all(call[field] == holder[field] for field in DECLARED)
        if not (is_same and was == fact["state"] == ("UP", None, False)):
            events.append(self.event(fact, name, fact["state"][1], now))
        events += [self.event(each, "ADDRESS_CONFLICT", None, now) for each in sharing]
        return ("registered", fact["generation"], self.view(who), events + ended)

    def restore(self, call: Call) -> Any:
        at, who = call["who"][:3], call["who"]
        assert at not in self.held
        assert not any(f["who"][:2] == who[:2] and f["who"][3] == who[3] for f in self.held.values())
        self.held[at] = {**call, "state": None, "since": None, "shares": None}
        self.mark_shared(-inf)
        self.signs[at].append({**call, "shows_life": call["ever_passed"], "before": call["expiry"]})
        self.lost.pop(at, None)
        self.apply(at, call["now"], row=("RESTORED", None))
        if self.held[at]["state"][0] == "OUT":
            self.held[at]["since"] = None  # not in the snapshot
        self.generation += 1

    def restore_lost(self, call: Call) -> Any:
        self.lost[call["who"][:3]] = {"who": call["who"], "state": call["state"], "since": None}

    def kept(self, at: Any) -> Any:
        """A replica's health in a snapshot: verdict, evidence, whether it was ever alive."""
        is_out = self.held[at]["state"][0] not in ROUTED
        evidence = self.evidence(at) if is_out else None
        return ("FAILING" if is_out else "UNKNOWN", evidence or "WEAK", self.alive_since(at) is not None)

    def beat(self, call: Call) -> Any:
        fact, now, at = self.of(call), call["now"], call["who"][:3]
        if isinstance(fact, tuple):
            return (*fact, (0, "", "", ""), [])
        was_provisional = self.last_heartbeat(at)["call"] == "restore"
        was_late, had_failed = self.silent_for(at, now) > LATE, bool(self.failing_run(at))
        events = self.record(call)
        row: tuple[str, str | None] | None = ("REREGISTERED", "SNAPSHOT") if was_provisional else None
        is_same = fact["state"] == self.table(at, now)
        if not row and fact["state"][0] != "UP" and self.table(at, now)[0] == "UP":
            row = ("RECOVERED", "PROBE" if had_failed else "HEARTBEAT")
        if not row and is_same and was_late and call["probe"] != "FAILING":
            row = ("LATE_HEARTBEAT", None)
        events += self.apply(at, now, row=row)
        events += self.end_wipe(fact, recovered=had_failed and call["probe"] != "FAILING")
        if had_failed and call["probe"] != "FAILING" and at[2] == 0:
            self.end_tombstones(at)
        status, view = "OK" if fact["version"] == call["version"] else "TOPICS_OUT_OF_DATE", self.view(fact["who"])
        if fact["shares"] is not None and (call["hand_over"] or events):
            events += self.end_superseded(fact["who"][3], now)
        return (status, "", view, events)

    def end_stream(self, call: Call) -> Any:
        fact, now, at = self.of(call), call["now"], call["who"][:3]
        if isinstance(fact, tuple) or self.stream(at) != call["stream"]:
            return []
        says_nothing = call["by_us"] or self.handed_over(at) or self.silent_for(at, now) > LATE
        counts = not says_nothing and now > self.lenient_since() + fact["expiry"]
        self.signs[at].append({**call, "counts": counts})
        if not counts:
            return []
        events = self.end_superseded(fact["who"][3], now)
        return events + (self.apply(at, now) if at in self.held else [])

    def unregister(self, call: Call) -> Any:
        fact = self.of(call)
        if isinstance(fact, tuple):
            return (*fact, [])
        state = ("GONE", call["reason"], True)
        return ("UNREGISTERED", "", self.apply(call["who"][:3], call["now"], state, ("UNREGISTERED", call["reason"])))

    def report_queue_stats(self, call: Call) -> Any:
        fact = self.of(call)
        if isinstance(fact, tuple):
            return (*fact, [])
        return ("RECORDED", "", [self.event(fact, "QUEUE_STATS", None, call["now"])])

    # --- calls of operators and time --------------------------------------------------------------------------

    def evict(self, call: Call) -> Any:
        at = call["who"][:3]
        if at in self.lost:
            return [("UNREGISTERED", self.lost.pop(at)["who"], "ADMIN", "GONE", True, 0.0)]
        if at not in self.held:
            return "BROKER_UNKNOWN"
        return self.apply(at, call["now"], ("GONE", "ADMIN", True), ("UNREGISTERED", "ADMIN"))

    def open_window(self, call: Call) -> Any:
        self.windows[call["key"]] = call["until"]

    def close_window(self, call: Call) -> Any:
        return self.windows.pop(call["key"], None) is not None

    def set_guard(self, call: Call) -> Any:
        guard = self.guard(call["cluster"])
        is_new_mode = guard["mode"] != call["mode"]
        guard.update(mode=call["mode"], until=None if call["mode"] == "AUTO" else call["until"])
        if call["mode"] == "OFF":
            guard["ended"] = None
        return self.decide(call["cluster"], "ADMIN", call["now"], is_new_mode=is_new_mode)

    def sweep(self, call: Call) -> Any:
        now = call["now"]
        over = [key for key, until in self.windows.items() if until <= now]
        events: list[Any] = [("MAINTENANCE_OFF", key, "TIME_OVER") for key in over]
        for key in over:
            del self.windows[key]
        for at, fact in self.lost.items():
            if fact["state"][2] and not self.is_covered(at, now):
                fact.update(state=("GONE", fact["state"][1], False), since=now)
                events.append(self.event(fact, "EXPIRED", fact["state"][1], now))
        for addr in {fact["who"][3] for fact in self.held.values()}:
            events += self.end_superseded(addr, now)
        events += self.judge(now)
        for at in list(self.held):
            events += self.apply(at, now)
        return events

    def credit_pause(self, call: Call) -> Any:
        self.pauses.append((call["now"] - call["seconds"], call["now"]))
        return [("NAMESRV_PAUSED", None, None)] if call["seconds"] >= PAUSE else []

    # --- what is seen -----------------------------------------------------------------------------------------

    def brokers(self) -> list[Any]:
        return [(f["who"], f["state"], f["generation"]) for _, f in sorted(self.held.items())]

    def shared_addrs(self) -> list[str]:
        addrs = [fact["who"][3] for fact in self.held.values()]
        return sorted({addr for addr in addrs if addrs.count(addr) > 1})

    def guard_seen(self, cluster: str) -> Any:
        guard = self.guard(cluster)
        return (guard["mode"], guard["edge"] is not None, *guard["counts"][:3], guard["overdue"])
