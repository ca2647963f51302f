"""Consumer groups as a list of facts, written to be obvious and slow. Imports nothing from the core.

``replay`` plays all calls since the start over an empty model, so there is no state that could drift. A call is a plain
dict, a beat of a client a list of (group, model, topics).
"""

from __future__ import annotations

from typing import Any

Call = dict[str, Any]
Fact = dict[str, Any]

EXPIRY, SCAN, GRACE, WARM_UP = 120.0, 10.0, 2.0, 30.0
HOLD_DOWNS = {"slow": 4.0}
SILENT_GROUPS = {"mute"}
MAX_CLIENTS, MAX_GROUPS = 5, 4


class Model:
    """Clients, what each group's members were last shown, and pins."""

    def __init__(self, now: float) -> None:
        self.ready_at = now + WARM_UP
        self.next_scan = now + SCAN
        self.lenient_until = now
        self.state = "warming"
        self.clients: list[Fact] = []
        self.joins: list[tuple[str, str]] = []
        """(group, client id), in the order of joining."""
        self.shown: dict[str, set[str]] = {}
        self.since: dict[str, float] = {}
        """When the first change that is not shown happened."""
        self.pins: dict[str, tuple[set[str], float]] = {}
        self.models: dict[str, str] = {}

    def client(self, client_id: str) -> Fact | None:
        return next((each for each in self.clients if each["id"] == client_id), None)

    def true_members(self, group: str) -> list[str]:
        return [client_id for name, client_id in self.joins if name == group]

    def wants(self, group: str, client_id: str) -> Any:
        client = self.client(client_id)
        assert client is not None
        return next(each for each in client["in"] if each[0] == group)

    def shape(self, group: str, client_id: str) -> Any:
        _, model, topics = self.wants(group, client_id)
        return (model, topics if model == "clustering" else None)

    def known(self) -> set[str]:
        return {group for group, _ in self.joins} | self.pins.keys() | {g for g, ids in self.shown.items() if ids}

    def view(self, group: str) -> Any:
        """What members are shown."""
        shown = sorted(self.shown.get(group, ()))
        targets, until = self.pins.get(group, (set(), None))
        pinned = [each for each in shown if each in targets or each.split("@")[0] in targets]
        return (shown, pinned, until, self.models.get(group))

    def conflicting(self, group: str) -> list[str]:
        members = self.true_members(group)
        return sorted(each for each in members if self.shape(group, each) != self.shape(group, members[0]))

    def due(self) -> float:
        """The next moment at which time does something."""
        moments = [self.next_scan, *(until for _, until in self.pins.values())]
        moments += [each["grace"] for each in self.clients if each["grace"] is not None]
        moments += [since + HOLD_DOWNS.get(group, 0.0) for group, since in self.since.items()]
        return min([*moments, self.ready_at] if self.state == "warming" else moments)

    # --- one call -----------------------------------------------------------------------------------------------

    def play(self, call: Call) -> Any:
        """Answer a call, and say which groups' members are shown something else than before."""
        before = {group: self.view(group) for group in GROUPS}
        answer = getattr(self, call["call"])(call, call["now"])
        if call["call"] == "excuse":
            return answer, []
        self.show(call["now"], everything=call["call"] == "advance" and call["now"] >= self.ready_at)
        if call["call"] == "advance" and self.state == "warming" and call["now"] >= self.ready_at:
            self.state = "ready"
        return answer, sorted(group for group in GROUPS if self.view(group) != before[group])

    def show(self, now: float, *, everything: bool) -> None:
        is_first_time = everything and self.state == "warming"
        for group in GROUPS:
            true, shown = set(self.true_members(group)), self.shown.setdefault(group, set())
            if true == shown:
                self.since.pop(group, None)
            else:
                since = self.since.setdefault(group, now)
                if not shown or is_first_time or now >= since + HOLD_DOWNS.get(group, 0.0):
                    self.shown[group] = set(true)
                    self.since.pop(group)
            members = self.true_members(group)
            if members:
                self.models[group] = self.wants(group, members[0])[1]
            elif not self.shown[group]:
                self.models.pop(group, None)

    def beat(self, call: Call, now: float) -> Any:
        client = self.client(call["id"])
        if client and call["stream"] < client["stream"]:
            return "taken over"
        if client is None and len(self.clients) >= MAX_CLIENTS:
            return ("limit", "clients")
        new = {group for group, _, _ in call["in"]} - self.known()
        is_same = client and client["in"] == call["in"] and client["stream"] == call["stream"]
        if not is_same and new and len(self.known()) + len(new) > MAX_GROUPS:
            return ("limit", "groups")
        took = client["stream"] if client and client["open"] and client["stream"] != call["stream"] else None
        if client is None:
            client = {"id": call["id"], "in": []}
            self.clients.append(client)
        client |= {"stream": call["stream"], "open": True, "at": now, "grace": None, "in": call["in"]}
        names = [group for group, _, _ in call["in"]]
        self.joins = [each for each in self.joins if each[1] != call["id"] or each[0] in names]
        self.joins += [(group, call["id"]) for group in names if (group, call["id"]) not in self.joins]
        return ("held", took, sorted(group for group in names if self.conflicting(group)))

    def end(self, call: Call, now: float) -> Any:
        client = self.client(call["id"])
        if client is None or client["stream"] != call["stream"]:
            return None
        client["open"] = False
        if not call["by_us"]:
            client["grace"] = max(now + GRACE, self.lenient_until)
        return None

    def leave(self, call: Call, now: float) -> Any:  # noqa: ARG002  # every call has a time
        client = self.client(call["id"])
        if client is None:
            return []
        mine = {group for group, client_id in self.joins if client_id == call["id"]}
        if not call["groups"]:
            self.drop(client)
            return sorted(mine)
        left = mine & set(call["groups"])
        self.joins = [each for each in self.joins if each[1] != call["id"] or each[0] not in left]
        client["in"] = [each for each in client["in"] if each[0] not in left]
        return sorted(left)

    def pin(self, call: Call, now: float) -> Any:
        if call["group"] not in self.known() and len(self.known()) >= MAX_GROUPS:
            return ("limit", "groups")
        self.pins[call["group"]] = (set(call["targets"]), now + call["seconds"])
        return None

    def unpin(self, call: Call, now: float) -> Any:  # noqa: ARG002  # as above
        self.pins.pop(call["group"], None)

    def excuse(self, call: Call, now: float) -> Any:
        for client in self.clients:
            client["at"] = min(now, client["at"] + call["seconds"])
        if call["seconds"] > GRACE:
            self.lenient_until = max(self.lenient_until, now + WARM_UP)
        for client in self.clients:
            if client["grace"] is not None:
                client["grace"] = max(client["grace"] + call["seconds"], self.lenient_until)

    def advance(self, call: Call, now: float) -> Any:  # noqa: ARG002  # as above
        gone = []
        for client in [each for each in self.clients if each["grace"] is not None and each["grace"] <= now]:
            gone.append((client["id"], "stream_ended"))
            self.drop(client)
        if now >= self.next_scan:
            self.next_scan = now + SCAN
            for client in [each for each in self.clients if now - each["at"] > EXPIRY]:
                gone.append((client["id"], "silence"))
                self.drop(client)
        self.pins = {group: pin for group, pin in self.pins.items() if pin[1] > now}
        return sorted(gone)

    def drop(self, client: Fact) -> None:
        self.clients.remove(client)
        self.joins = [each for each in self.joins if each[1] != client["id"]]


GROUPS = ("g1", "g2", "slow", "mute", "g5")


def replay(start: float, calls: list[Call]) -> tuple[Model, Any]:
    """Play all calls; return the model and the answer to the last."""
    model, answer = Model(start), None
    for call in calls:
        answer = model.play(call)
    return model, answer
