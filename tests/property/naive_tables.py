"""Plain tables of a name server: positions, topics, wipes, deletions, and the resulting routes."""

from __future__ import annotations

from typing import Any

Call = dict[str, Any]
Fact = dict[str, Any]
Who = tuple[str, str, int, str]
At = tuple[str, str, int]

ROUTED = {"PROVISIONAL", "UP", "SUSPECT", "PROTECTED"}


class Tables:
    """The registrations, each with its last applied state, and the settings of operators."""

    def __init__(self) -> None:
        self.held: dict[At, Fact] = {}
        self.wipes: dict[tuple[str, str], str] = {}
        self.tombstones: list[tuple[tuple[str, str], str, Any]] = []
        self.orders: dict[str, str] = {}

    def of(self, call: Call) -> tuple[str, str] | Fact:
        """The registration that a call names, or the reason for its refusal and the address of the holder."""
        fact = self.held.get(call["who"][:3])
        if not fact:
            return ("UNKNOWN_BROKER", "")
        is_current = fact["who"] == call["who"] and fact["generation"] == call["generation"]
        return fact if is_current else ("STALE_GENERATION", fact["who"][3])

    def update(self, call: Call) -> Any:
        fact = self.of(call)
        if isinstance(fact, tuple):
            return "BROKER_UNKNOWN" if fact[0] == "UNKNOWN_BROKER" else fact[0]
        if fact["version"] != call["base"]:
            return "STALE_DATA_VERSION"
        if not all(topic in fact["topics"] for topic in call["removed"]):
            return "INVALID_REQUEST"
        topics = {topic: queues for topic, queues in fact["topics"].items() if topic not in call["removed"]}
        fact["topics"], fact["version"] = {**topics, **call["changed"]}, call["version"]
        self.end_tombstones(fact["who"][:3])
        return len(fact["topics"])

    # --- what operators set ---------------------------------------------------------------------------------------

    def restore_overrides(self, call: Call) -> Any:
        self.wipes, self.tombstones = dict(call["wipes"]), list(call["tombstones"])

    def set_writable(self, call: Call) -> Any:
        key = call["key"]
        # A wipe survives the group's absence, during which it can be undone.
        if key not in self.wipes and not any(at[:2] == key for at in self.held):
            return "BROKER_UNKNOWN"
        if call["writable"] is (key not in self.wipes):
            return False
        if call["writable"]:
            del self.wipes[key]
        else:
            self.wipes[key] = self.held.get((*key, 0), {"incarnation": ""})["incarnation"]
        return True

    def end_wipe(self, fact: Fact, *, recovered: bool, left: str | None = None) -> list[Any]:
        """A wipe ends with the next process; without an incarnation a failed probe or a stop shows it."""
        key, now_runs = fact["who"][:2], fact["incarnation"]
        wiped = self.wipes.get(key)
        if wiped is None or fact["who"][2] != 0:
            return []
        if left in {"DRAIN", "REMOVED_FROM_CONFIG"} or (left == "SHUTDOWN" and wiped == ""):
            why: str | None = left
        elif left is None and wiped and now_runs and wiped != now_runs:
            why = "INCARNATION"
        else:
            why = "PROBE" if recovered and wiped == "" else None
        if why is None:
            return []
        del self.wipes[key]
        return [("PERM_CHANGED", key, why)]

    def hide_topic(self, call: Call) -> Any:
        topic = call["topic"]
        keys = [key for key, _, _ in self.routes(call["cluster"]).get(topic, [])]
        for key in keys:
            source = self.source(key)
            assert source is not None
            self.tombstones = [t for t in self.tombstones if t[:2] != (key, topic)]
            self.tombstones.append((key, topic, source["version"]))
        return keys or "TOPIC_NOT_FOUND"

    def order_topic(self, call: Call) -> Any:
        self.orders[call["topic"]] = call["conf"]

    # --- what is seen -----------------------------------------------------------------------------------------

    def routed(self, key: tuple[str, str]) -> list[Fact]:
        return [self.held[at] for at in sorted(self.held) if at[:2] == key and self.held[at]["state"][0] in ROUTED]

    def view(self, who: Who) -> Any:
        """The group's facts in the response to a member."""
        routed = self.routed(who[:2])
        if not routed:
            return (0, "", "", "")
        first = routed[0]["who"]
        is_slave_of_a_living_master = who[2] != 0 and first[2] == 0
        return (first[2], first[3], *((first[3], routed[0]["ha"]) if is_slave_of_a_living_master else ("", "")))

    def source(self, key: tuple[str, str]) -> Fact | None:
        """The replica whose topics are the group's."""
        return next((f for f in self.routed(key)[:1] if f["who"][2] == 0 or f["acting"]), None)

    def end_tombstones(self, at: At) -> None:
        source = self.source(at[:2])
        if source and source["who"][:3] == at:
            self.tombstones = [t for t in self.tombstones if t[0] != at[:2] or t[2] == source["version"]]

    def routes(self, cluster: str = "", zone: str = "") -> dict[str, Any]:
        """Each topic's route: per group its queues and the routed replicas."""
        routes: dict[str, Any] = {}
        for key in sorted({at[:2] for at in self.held if not cluster or at[0] == cluster}):
            source = self.source(key)
            if source is None:
                continue
            is_far = bool(zone) and source["who"][2] == 0 and source["zone"] != zone
            for topic, (queues, perm) in source["topics"].items():
                if (key, topic, source["version"]) in self.tombstones:
                    continue
                route = routes.setdefault(topic, [])
                seen_perm = perm if source["who"][2] == 0 and key not in self.wipes else perm & ~2
                replicas = [(f["who"][2], f["who"][3], f["state"][0]) for f in self.routed(key)]
                if not is_far:
                    route.append((key, (queues, seen_perm), replicas))
        return routes


def name_of(call: Call, holder: Fact | None) -> str:
    """The event of a registration of a position."""
    if not holder:
        return "REGISTERED"
    if holder["who"][3] != call["who"][3]:
        return "ADDRESS_CHANGED"
    before, after = holder["incarnation"], call["incarnation"]
    is_new_process = before and after and before != after and holder["state"][0] in ROUTED
    return "RESTARTED" if is_new_process else "REREGISTERED"
