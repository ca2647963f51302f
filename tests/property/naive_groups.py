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
MAX_STREAMS, MAX_GROUPS, MAX_SUBSCRIPTIONS = 5, 4, 8


class Model:
    """Streams of clients, what each group's members were last shown, and pins."""

    def __init__(self, now: float) -> None:
        self.ready_at = now + WARM_UP
        self.next_scan = now + SCAN
        self.lenient_until = now
        self.state = "warming"
        self.streams: list[Fact] = []
        self.joins: list[tuple[str, str]] = []
        """(group, client id), in the order of joining."""
        self.holders: dict[tuple[str, str], int] = {}
        """(group, client id) to the current stream of the member."""
        self.shown: dict[str, set[str]] = {}
        self.since: dict[str, float] = {}
        """Time of the first change that is not shown yet."""
        self.pins: dict[str, tuple[set[str], float]] = {}
        self.queue_pins: dict[tuple[str, int], tuple[str, float]] = {}
        """(group, queue) to the target and the end of its pin."""
        self.models: dict[str, str] = {}
        self.last_wants: dict[tuple[str, str], Any] = {}
        """(group, client id) to what a shown member wanted last, also after it left."""
        self.numbers: dict[tuple[str, str], int] = {}
        """(group, client id) to the number of its latest joining."""

    def stream(self, number: int) -> Fact | None:
        return next((each for each in self.streams if each["number"] == number), None)

    def holder(self, group: str, client_id: str) -> int:
        return self.holders[group, client_id] if (group, client_id) in self.joins else 0

    def held_by(self, number: int) -> list[tuple[str, str]]:
        return [each for each in self.joins if self.holders[each] == number]

    def true_members(self, group: str) -> list[str]:
        return [client_id for name, client_id in self.joins if name == group]

    def wants(self, group: str, client_id: str) -> Any:
        stream = self.stream(self.holders[group, client_id])
        assert stream is not None
        return next(each for each in stream["in"] if each[0] == group)

    def shape(self, group: str, client_id: str) -> Any:
        _, model, topics = self.wants(group, client_id)
        return (model, topics if model == "clustering" else None)

    def known(self) -> set[str]:
        return {group for group, _ in self.joins} | self.pins.keys() | {g for g, ids in self.shown.items() if ids}

    def view(self, group: str) -> Any:
        """The state that members see."""
        shown = sorted(self.shown.get(group, ()))
        targets, until = self.pins.get(group, (set(), None))
        pinned = [each for each in shown if each in targets or each.split("@")[0] in targets]
        return (shown, pinned, until, self.models.get(group), self.queue_pins_of(group))

    def queue_pins_of(self, group: str) -> list[tuple[int, str, float]]:
        return sorted((queue, *pin) for (name, queue), pin in self.queue_pins.items() if name == group)

    def settings(self, group: str) -> Any:
        """In what the members that see each other differ from the one that joined first, and that one."""
        shown = sorted(self.shown.get(group, ()), key=lambda each: self.numbers[group, each])
        differing = {}
        for each in shown:
            (_, model, topics), (_, own_model, own_topics) = (
                self.last_wants[group, shown[0]],
                self.last_wants[group, each],
            )
            if model != own_model:
                differing[each] = "model"
            elif model == "clustering" and topics != own_topics:
                differing[each] = "topics"
        return (shown[0], differing) if differing else None

    def conflicting(self, group: str) -> list[str]:
        members = self.true_members(group)
        return sorted(each for each in members if self.shape(group, each) != self.shape(group, members[0]))

    def due(self) -> float:
        """The next time at which something is due."""
        moments = [self.next_scan, *(until for _, until in [*self.pins.values(), *self.queue_pins.values()])]
        moments += [each["grace"] for each in self.streams if each["grace"] is not None]
        moments += [since + HOLD_DOWNS.get(group, 0.0) for group, since in self.since.items()]
        return min([*moments, self.ready_at] if self.state == "warming" else moments)

    # --- one call -----------------------------------------------------------------------------------------------

    def play(self, call: Call) -> Any:
        """Return the result of a call, and the groups whose members see a change."""
        before = {group: (self.view(group), self.settings(group)) for group in GROUPS}
        answer = getattr(self, call["call"])(call, call["now"])
        if call["call"] == "credit_pause":
            return answer, []
        self.show(call["now"], everything=call["call"] == "advance" and call["now"] >= self.ready_at)
        if call["call"] == "advance" and self.state == "warming" and call["now"] >= self.ready_at:
            self.state = "ready"
        return answer, sorted(group for group in GROUPS if (self.view(group), self.settings(group)) != before[group])

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
            self.last_wants |= {(group, each): self.wants(group, each) for each in members}
            if members:
                self.models[group] = self.wants(group, members[0])[1]
            elif not self.shown[group]:
                self.models.pop(group, None)

    def beat(self, call: Call, now: float) -> Any:
        number, client_id = call["stream"], call["id"]
        names = [group for group, _, _ in call["in"]]
        lost = [group for group in names if self.holder(group, client_id) > number]
        own = self.stream(number)
        if lost and lost == names:
            if own is not None:
                self.drop(own)
            return "taken over"
        wanted = [each for each in call["in"] if each[0] not in lost]
        if refusal := self.refusal(call, wanted):
            return refusal
        if own is None:
            own = {"number": number, "id": client_id, "in": []}
            self.streams.append(own)
        taken = sorted({self.holder(group, client_id) for group, _, _ in wanted} - {number, 0})
        mine = {group for group, _, _ in wanted}
        gone = [each for each in self.held_by(number) if each[0] not in mine]
        self.joins = [each for each in self.joins if each not in gone]
        joining = [(group, client_id) for group, _, _ in wanted if (group, client_id) not in self.joins]
        self.joins += joining
        self.numbers |= dict.fromkeys(joining, call["number"])
        self.holders |= {(group, client_id): number for group in mine}
        own |= {"open": True, "at": now, "grace": None, "in": wanted}
        took = []
        for older in map(self.stream, taken):
            assert older is not None
            if older["open"]:
                took.append((older["number"], bool(self.held_by(older["number"]))))
            if not self.held_by(older["number"]):
                self.streams.remove(older)
        return ("held", took, sorted(lost), sorted(group for group in mine if self.conflicting(group)))

    def refusal(self, call: Call, wanted: Any) -> Any:
        """All streams of the test come from one peer, so no other stream is ended for it."""
        number, client_id, own = call["stream"], call["id"], self.stream(call["stream"])
        if own is not None and own["in"] == call["in"] == wanted and len(self.held_by(number)) == len(wanted):
            return None
        known = self.known()
        new = [group for group, _, _ in wanted if group not in known]
        if new and len(known) + len(new) > MAX_GROUPS:
            return ("limit", "groups")
        mine = {(group, client_id) for group, _, _ in wanted}
        emptied = [
            each
            for each in self.streams
            if each["number"] != number and (held := self.held_by(each["number"])) and set(held) <= mine
        ]
        if own is None and len(self.streams) + 1 - len(emptied) > MAX_STREAMS:
            return ("limit", "clients")
        others = [each for each in self.joins if each not in mine and self.holders[each] != number]
        total = sum(len(self.wants(*each)[2]) for each in others) + sum(len(topics) for _, _, topics in wanted)
        before = sum(len(self.wants(*each)[2]) for each in self.joins)
        return ("limit", "subscriptions") if total > max(before, MAX_SUBSCRIPTIONS) else None

    def end(self, call: Call, now: float) -> Any:
        stream = self.stream(call["stream"])
        if stream is None:
            return None
        stream["open"] = False
        if not call["by_us"]:
            stream["grace"] = max(now + GRACE, self.lenient_until)
        return None

    def leave(self, call: Call, now: float) -> Any:  # noqa: ARG002  # every call has a time
        mine = {group for group, client_id in self.joins if client_id == call["id"]}
        if not call["groups"]:
            for stream in [each for each in self.streams if each["id"] == call["id"]]:
                self.drop(stream)
            return sorted(mine)
        left = mine & set(call["groups"])
        self.joins = [each for each in self.joins if each[1] != call["id"] or each[0] not in left]
        return sorted(left)

    def pin(self, call: Call, now: float) -> Any:
        if call["group"] not in self.known() and len(self.known()) >= MAX_GROUPS:
            return ("limit", "groups")
        self.pins[call["group"]] = (set(call["targets"]), now + call["seconds"])
        return None

    def unpin(self, call: Call, now: float) -> Any:  # noqa: ARG002  # as above
        self.pins.pop(call["group"], None)

    def pin_queue(self, call: Call, now: float) -> Any:
        self.queue_pins[call["group"], call["queue"]] = (call["target"], now + call["seconds"])

    def unpin_queues(self, call: Call, now: float) -> Any:  # noqa: ARG002  # as above
        self.queue_pins = {
            (group, queue): pin
            for (group, queue), pin in self.queue_pins.items()
            if group != call["group"] or call["queue"] not in {None, queue}
        }

    def credit_pause(self, call: Call, now: float) -> Any:
        for stream in self.streams:
            stream["at"] = min(now, stream["at"] + call["seconds"])
        if call["seconds"] > GRACE:
            self.lenient_until = max(self.lenient_until, now + WARM_UP)
        for stream in self.streams:
            if stream["grace"] is not None:
                stream["grace"] = max(stream["grace"] + call["seconds"], self.lenient_until)

    def advance(self, call: Call, now: float) -> Any:  # noqa: ARG002  # as above
        gone = []
        for stream in [each for each in self.streams if each["grace"] is not None and each["grace"] <= now]:
            gone.append((stream["id"], "stream_ended"))
            self.drop(stream)
        if now >= self.next_scan:
            self.next_scan = now + SCAN
            for stream in [each for each in self.streams if now - each["at"] > EXPIRY]:
                gone.append((stream["id"], "silence"))
                self.drop(stream)
        self.pins = {group: pin for group, pin in self.pins.items() if pin[1] > now}
        self.queue_pins = {queue: pin for queue, pin in self.queue_pins.items() if pin[1] > now}
        return sorted(gone)

    def drop(self, stream: Fact) -> None:
        held = self.held_by(stream["number"])
        self.streams.remove(stream)
        self.joins = [each for each in self.joins if each not in held]


GROUPS = ("g1", "g2", "slow", "mute", "g5")


def replay(start: float, calls: list[Call]) -> tuple[Model, Any]:
    """Play all calls; return the model and the answer to the last."""
    model, answer = Model(start), None
    for number, call in enumerate(calls):
        answer = model.play(call | {"number": number})
    return model, answer
