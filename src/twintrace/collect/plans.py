"""Plans of steps: what a step that repeats an earlier one still has to say.

    step 0   recorded in full; a draft of its events is kept        journal: all lines
    step 1   followed: each event is compared with the draft's      journal: a reference to step 0, and numbers
    step 2   departs at event 812                                   journal: all lines, of which the plan had the first

A framework that can follow a plan (`Framework.plans`) makes the drafts and compares; here is kept what the lines of the journal
were, so that a step that was followed becomes numbers (`store/folding.py`), and one that departs is written out up to there and
goes on as if there had been no plan. There may be several plans: of steps that update the weights and steps that do not.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from ..model.errors import TraceWriteError
from ..model.records import Role
from ..model.sites import Kind, Phase
from ..model.tensors import UNITS
from ..store.device_sums import Kinds, columns, finish
from ..store.folding import HAS_FINGERPRINT, HAS_ORDER, WHOLE_MAX, WHOLE_MIN, Numbers, Pattern
from ..store.lines import encode
from .flatten import Flattener, Unobserved
from .observer import Known, Observer
from .tensor_lines import text_of_numbers

if TYPE_CHECKING:
    from ..frameworks.protocol import Framework, Open
    from ..store.digest import Found

_TENSOR = re.compile(rb'\{"k":"tensor","id":([0-9]+),')
_HOLE = re.compile(rb"[\x10-\x1f]")
_VALUES = re.compile(rb',"stats":\[[^\]]*\](?:,"fp":"[0-9a-f]{32}")?(?:,"order":\[[^\]]*\])?')
_BY = re.compile(r'"by":(null|[0-9]+)$')
_MAX_PLANS = 8  # as many as there are structures that later steps may refer to (store/writer.py)
_MAX_FAILURES = 16
"""Steps in a row of which plans were made in vain; then no more are made. A run whose steps never repeat pays for so many."""
_FIRST_MARK = 0x10


class Mark(NamedTuple):
    """Position in a journal."""

    lines: int
    calls: int
    tensors: int
    stacks: int
    configurations: int


_FIRST = Mark(1, 0, 0, 0, 0)
"""Of a journal that has its head, and nothing else."""


class Recording(Protocol):
    """Questions to the session."""

    def mark(self) -> Mark: ...
    def modules_around(self) -> list[tuple[str, int | None]]: ...
    def open_followed(self) -> bool:
        """Begin the journal of the present step. False: nothing is to be recorded."""

    def precision(self) -> Any:
        """Settings that the head of the present journal says."""

    def snapshot(self) -> Any:
        """Numbers of stacks and configurations, for `go_on_from`."""

    def go_on_from(
        self,
        mark: Mark,
        calls: Iterable[tuple[Phase, Kind, str]],
        passes: Mapping[str, int],
        snapshot: Any,
        lines: Iterable[str],
    ) -> None:
        """Write these lines, and count on as if they had been recorded."""

    def write_gradient(self, key: tuple[int, Role, str], tensor: Any, count: int) -> None: ...
    def reopen(self, event: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Open:
        """A call that was as planned when it was entered, and does not end so."""

    def trouble(self, where: str, error: Exception) -> None: ...


class Plan:
    """A step that was recorded in full, as later ones are held against it."""

    def __init__(self, script: Any, pattern: Pattern, precision: Any, snapshot: Any) -> None:
        self.script, self.pattern, self.precision, self.snapshot = script, pattern, precision, snapshot
        self.lines = pattern.lines
        count = len(script.kinds)
        self.heads = [""] * count
        self.rests = [""] * count
        self.makers: list[int | None] = [None] * count
        self.literal: dict[int, str] = {}  # of tensors without a finite value: what is said of them
        self.number_at: dict[int, int] = {}  # by place of its line: the number of a tensor
        for place, line in enumerate(self.lines):
            match = _TENSOR.match(line)
            if match is None:
                continue
            number = self.number_at[place] = int(match[1])
            values = _HOLE.search(line) or _VALUES.search(line)
            if number >= count or values is None:
                raise ValueError("a tensor without values")
            head = line[: values.start()].decode("utf-8", "surrogatepass")
            by = _BY.search(head)
            if by is None:
                raise ValueError("a tensor without a maker")
            self.heads[number], self.rests[number] = head, line[values.end() :].decode("utf-8", "surrogatepass")
            self.makers[number] = None if by[1] == "null" else int(by[1])
            if len(values[0]) > 1:
                self.literal[number] = values[0].decode()
        if not all(self.heads) or not pattern.plain:
            raise ValueError("tensors and lines do not fit")
        places = pattern.tensors
        self.order = np.array(sorted(places, key=places.__getitem__), np.int64)
        marks = np.frombuffer(pattern.marks, np.uint8).astype(np.int64) - _FIRST_MARK
        dtypes = [dtype for dtype, _ in script.kinds]
        self.dtypes, self.sizes = dtypes, [nbytes for _, nbytes in script.kinds]
        self.kinds = Kinds(dtypes, self.sizes)
        self.has_bytes = np.array(self.sizes, np.int64) > 0
        whole = np.array([dtype not in UNITS for dtype in dtypes], np.int64)
        usual = HAS_ORDER + (WHOLE_MIN + WHOLE_MAX) * whole[self.order]
        self.has_prints = bool(len(marks) and marks[0] & HAS_FINGERPRINT)
        self.is_regular = bool((marks == usual + HAS_FINGERPRINT * self.has_prints).all())

    def numbers(
        self, rows: np.ndarray[Any, Any], tickets: Sequence[int], host: Mapping[int, Found], wanted: bool
    ) -> Numbers | None:
        """The numbers of a step that followed the plan; None where some cannot be in the place of the plan's."""
        if not self.is_regular or self.has_prints != wanted:
            return None
        count = len(self.dtypes)
        chosen = rows[np.array(tickets[:count], np.int64)]
        prints, reals, counts, usual = columns(chosen, self.kinds, wanted)
        if host:
            prints = prints.copy()
        for number, found in host.items():
            low, high, mean, norm, nan, posinf, neginf, zero, text, one, two = found
            if number in self.literal:
                if text_of_numbers(found) != self.literal[number]:
                    return None
                continue
            if one is None or norm is None or not np.isfinite(norm) or max(abs(low or 0), abs(high or 0)) > 2**53:
                return None
            reals[:, number] = low, high, mean, norm, one, two
            counts[:, number] = nan, posinf, neginf, zero
            usual[number] = True
            if text is not None:
                prints[number] = np.frombuffer(bytes.fromhex(text), np.uint8)
        for number, said in self.literal.items():
            if number not in host and self.sizes[number]:
                (found,) = finish(
                    chosen[number : number + 1],
                    self.dtypes[number : number + 1],
                    self.sizes[number : number + 1],
                    wanted,
                )
                if text_of_numbers(found) != said:
                    return None
        order = self.order
        if not usual[order].all() or (counts[:, order] >= 2**32).any():
            return None
        ends = reals[:2, order]
        with np.errstate(over="ignore"):
            short = ends.astype("<f4")
        if np.array_equal(short.astype("<f8"), ends):
            ends = short
        return Numbers(
            np.ascontiguousarray(prints[order]),
            np.ascontiguousarray(ends, ends.dtype.newbyteorder("<")),
            np.ascontiguousarray(reals[2:, order], "<f8"),
            np.ascontiguousarray(counts[:, order], "<u4"),
        )


class Planner:
    """Drafts, plans and the follower of one session."""

    def __init__(self, plans: Any, session: Recording, framework: Framework, observer: Observer, lock: Any) -> None:
        """`plans`: what the framework offers for it."""
        self._plans, self._session, self._observer, self._lock = plans, session, observer, lock
        self.draft: Any = None
        """Of the present step, while it is recorded in full."""
        self.follower: Any = None
        """Of the present step, while it is as planned; before its first event, of the one to come."""
        self._known: list[Plan] = []
        self._failures = 0
        self._begun = False
        self._host: dict[int, Found] = {}
        self._counts: Counter[Any] = Counter()
        self._inputs: dict[int, str] = {}  # by call: lines that are made anew, up to the results
        self._outputs: dict[int, str] = {}  # and from there on
        self._planned: dict[int, bytes] = {}  # of a step that departed: lines of its plan that were made anew
        self._numbers: Iterable[int] = ()
        self._flattener = Flattener(framework, self._planned_number)

    # --- the session's side -----------------------------------------------------------------------------------------

    def expect_step(self) -> None:
        """A step may begin: it is held against the plans that there are."""
        self.draft = self.follower = None
        self._begun = False
        if self._known and self._failures < _MAX_FAILURES and self._observer.digests is not None:
            scripts = [plan.script for plan in self._known]
            self.follower = self._plans.Follower(scripts, self, self._observer.digests, self._lock)
        else:
            self._begin_draft()

    def journal_opened(self) -> None:
        """The step's journal has been begun, and its head written."""
        if self.follower is None and self.draft is None:
            self._begin_draft()
        if self.draft is not None and self._session.mark() != _FIRST:
            self.draft.spoil("the step has begun with something else than calls")

    def _begin_draft(self) -> None:
        if self._failures < _MAX_FAILURES:
            self.draft = self._plans.Draft(self)
            self._observer.log, self._observer.marks = [], {}

    def spoil(self, why: str) -> None:
        """Something happened that no plan has."""
        if self.draft is not None:
            self.draft.spoil(why)

    @property
    def is_followed(self) -> bool:
        """Has the present step been as planned, from its first event on?"""
        return self.follower is not None and self._begun

    def finish(self) -> tuple[Pattern, Numbers] | None:
        """The structure and numbers of a step that ends now, and was as planned; None: it is to be ended like others."""
        follower = self.follower
        if follower is None or not self._begun:
            return None
        if not follower.is_complete:
            self.depart()
            return None
        plan = self._plan()
        digests: Any = self._observer.digests
        plan.script.copies(digests.overwritten)
        rows, read, reasons = digests.collect_rows()
        tickets = follower.rows[: len(follower.script.kinds)]
        for number in np.flatnonzero(plan.has_bytes & ~read[tickets]).tolist():
            if number not in self._host:
                reasons.setdefault(tickets[number], "it was not read")  # zeros would be taken for its values
        numbers = None
        if not reasons:
            numbers = plan.numbers(rows, follower.rows, self._host, self._observer.fingerprints)
        if numbers is None:
            self._write_out(rows, reasons)
            return None
        pattern = plan.pattern
        changed = self._changed_lines(follower.events)
        if changed:
            pattern = pattern.with_lines(
                {place: text.encode("utf-8", "surrogatepass") for place, text in changed.items()}
            )
        self._known.remove(plan)
        self._known.insert(0, plan)
        self._failures = 0
        follower.release()
        return pattern, numbers

    def step_ended(self, pattern: Pattern | None) -> None:
        """The step's journal is closed; `pattern` is its structure, where it can be referred to."""
        draft, self.draft = self.draft, None
        self._observer.log = None
        if draft is not None and draft.events:
            self._failures += 1
            plan = self._plan_of(draft, pattern)  # how far stacks and so on were counted is known until the next step
            if plan is not None:
                self._plans.write_out(plan.script)
                self._plans.wire(plan.script, self)
                self._known.insert(0, plan)
                del self._known[_MAX_PLANS:]
        self._observer.marks = {}
        self._host, self._inputs, self._outputs, self._planned = {}, {}, {}, {}
        self._counts.clear()
        self.follower = None

    def _plan_of(self, draft: Any, pattern: Pattern | None) -> Plan | None:
        if pattern is None:
            return None
        first: dict[str, int] = {}
        shared = {}
        for number, mark in self._observer.marks.items():
            base = first.setdefault(mark, number)
            if base != number:
                shared[number] = base
        script = draft.finish(shared)
        if script is None:
            return None
        if self._planned:  # what the events of the earlier plan are compared with is what its lines say
            pattern = pattern.with_lines(self._planned)
        try:
            return Plan(script, pattern, self._session.precision(), self._session.snapshot())
        except ValueError:
            return None

    def drop(self) -> None:
        """No more plans."""
        if self.follower is not None:
            self.follower.release()
        self.draft = self.follower = None
        self._observer.log = None
        self._failures = _MAX_FAILURES

    # --- the draft's side (Notebook) ----------------------------------------------------------------------------------

    def mark(self) -> Mark:
        return self._session.mark()

    def take(self) -> list[int]:
        log, self._observer.log = self._observer.log, []
        return log or []

    # --- the follower's side (Desk) -----------------------------------------------------------------------------------

    def begin(self) -> bool:
        if self._begun:
            return True
        if not self._session.open_followed() or not self._observer.is_idle:
            return False
        follower = self.follower
        follower.scripts = [plan.script for plan in self._known if plan.precision is self._session.precision()]
        if follower.script not in follower.scripts:
            return False
        self._begun = True
        return True

    def around(self) -> list[tuple[str, int | None]]:
        return self._session.modules_around()

    def gradients(self, slots: Sequence[tuple[bool, int, Any]], sent: Sequence[Any], received: Sequence[Any]) -> None:
        """Gradients of calls that were planned, as a node of the graph has sent or received them; the step is not as planned."""
        for is_sent, position, key in slots:
            given = sent if is_sent else received
            if position < len(given) and given[position] is not None:
                with self._lock:
                    count = self._counts[key]
                    self._counts[key] = count + 1
                self._session.write_gradient(key, given[position], count)

    def read(self, number: int, tensor: Any) -> None:
        self._host[number] = self._observer.read(tensor, self.follower.script.kinds[number][0])

    def sample(self, tensor: Any) -> Any:
        return self._observer.sample(tensor)

    def retell(self, event: Any, enter: Any, values: Any) -> None:
        follower = self.follower
        numbers = [sight.number for sight in event.sights()]
        self._numbers = iter(numbers)
        if event is enter:
            args, kwargs = values
            inputs = ",".join([self._flatten(value, str(i)) for i, value in enumerate(args)])
            named = ",".join([f"{encode(key)}:{self._flatten(value, f'kw.{key}')}" for key, value in kwargs.items()])
            head, rest = enter.text.partition(',"in":[')[0], enter.text.rpartition(',"stack":')[2]
            text = f'{head},"in":[{inputs}],"kw":{{{named}}},"stack":{rest}'
            if text != enter.text:
                self._inputs[enter.id] = text
        else:
            after = event.text.rpartition(',"after":{') if event.after else ("", "", "")
            text = f',"out":{self._flatten(values, "")}{after[1]}{after[2]}'
            if text != event.text:
                self._outputs[enter.id] = text
        if follower is None:
            raise ValueError("nothing is followed")

    def _flatten(self, value: Any, slot: str) -> str:
        try:
            return self._flattener.flatten(value, slot, [])
        except Unobserved as error:
            raise ValueError("a tensor where there was none") from error

    def _planned_number(self, tensor: Any) -> int:
        return next(iter(self._numbers))

    def reopen(self, event: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Open:
        """A planned call that does not end as planned, to be ended in full."""
        return self._session.reopen(event, args, kwargs)

    def text_of(self, enter: Any) -> str:
        """The line of a planned call up to its results."""
        text: str = self._inputs.get(enter.id, enter.text)
        return text

    def depart(self, error: Exception | None = None) -> None:
        """The step is not as planned: what was followed is written, and it goes on in full."""
        self._write_out(None, {})
        if error is not None:
            self._session.trouble("plan", error)

    # --- writing out --------------------------------------------------------------------------------------------------

    def _plan(self) -> Plan:
        return next(plan for plan in self._known if plan.script is self.follower.script)

    def _changed_lines(self, events: Sequence[Any]) -> dict[int, str]:
        """Lines of calls that were made anew, by their place in the pattern."""
        if not self._inputs and not self._outputs:
            return {}
        found: dict[int, str] = {}
        texts: dict[int, str] = {}
        for event in events:
            if event.id < 0:
                continue
            if event.is_enter:
                texts[event.id] = event.text
            elif event.id in self._inputs or event.id in self._outputs:
                start = self._inputs.get(event.id, texts[event.id])
                found[event.mark[0] - _FIRST.lines - 1] = start + self._outputs.get(event.id, event.text)
        return found

    def _write_out(self, rows: np.ndarray[Any, Any] | None, reasons: Mapping[int, str]) -> None:
        """Write what was followed as it would have been written. `rows`, `reasons`: of the values, where they are known already."""
        follower = self.follower
        if follower is None:
            return
        plan = self._plan()
        follower.settle()
        self._observer.digests.unfollow(follower)  # type: ignore[union-attr]
        self.follower = None
        if not self._begun:  # nothing was followed, and nothing is known
            self._begin_draft()
            if self._session.mark().lines:
                self.journal_opened()
            return
        events = follower.events[: follower.at]
        mark = Mark(*events[-1].mark) if events else _FIRST
        changed = self._changed_lines(events)
        known = self._known_tensors(plan, follower, mark.tensors, rows, reasons)
        told = {each.number: f"{each.head}{each.text}{each.rest}" for each in known if each.row < 0}
        lines = []
        # In the plan's order: more lines will follow, and a plan be made of all.
        for place in range(mark.lines - _FIRST.lines):
            number = plan.number_at.get(place)
            if number is None:
                lines.append(changed.get(place) or plan.lines[place].decode("utf-8", "surrogatepass"))
            elif number in told:
                lines.append(told.pop(number))
        lines += told.values()
        calls = [(event.phase, event.sort, event.name) for event in events if event.is_enter and event.id >= 0]
        keys = [event.key for event in events if event.key is not None]
        self._counts = Counter(keys)
        passes = Counter(key[2] for key in keys if key[1] is Role.PARAMETER)
        try:
            if self._failures < _MAX_FAILURES and rows is None:
                self.draft = self._plans.Draft.going_on(self, follower)
                self._planned = {place: plan.lines[place] for place in changed}
                if any(call in self._inputs for call in self.draft.open_calls):
                    self.draft.spoil("a call whose settings are others than planned has not ended")
                self._observer.log, self._observer.marks = [], {}
            self._session.go_on_from(mark, calls, passes, plan.snapshot, lines)
            self._observer.resume(mark.tensors, known, follower.holds)
            follower.holds = {}
            if self.draft is not None and self._session.mark() != mark._replace(lines=max(mark.lines, _FIRST.lines)):
                self.draft.spoil("lines of tensors are elsewhere")
        except TraceWriteError as error:
            self._session.trouble("plan", error)

    def _known_tensors(
        self, plan: Plan, follower: Any, count: int, rows: np.ndarray[Any, Any] | None, reasons: Mapping[int, str]
    ) -> list[Known]:
        seats = follower.seats()
        found = []
        for number in range(count):
            row, text = follower.rows[number], ""
            if number in self._host:
                row, text = -1, text_of_numbers(self._host[number])
            elif rows is not None:
                text = self._text(plan, number, rows[row], reasons.get(row))
                row = -1
            seat = stretch = None
            spec = follower.script.specs[number]
            if number in seats:
                storage, address = seats[number]
                seat = storage, address, spec.facts.place
                stretch = (address, spec.facts.form) if spec.elsewhere else None
            found.append(
                Known(
                    number,
                    plan.heads[number],
                    plan.rests[number],
                    plan.makers[number],
                    row,
                    text,
                    seat,
                    stretch,
                    follower.versions[number],
                    follower.samples.get(number),
                    spec.grad,
                )
            )
        return found

    def _text(self, plan: Plan, number: int, row: np.ndarray[Any, Any], reason: str | None) -> str:
        if reason is not None:
            self._observer.gaps.setdefault(
                "missing",
                f"the values of a tensor ({plan.dtypes[number]}, {plan.sizes[number]} bytes) are not kept: {reason}",
            )
            return f',"missing":{encode(reason)}'
        (found,) = finish(row[None], [plan.dtypes[number]], [plan.sizes[number]], self._observer.fingerprints)
        return text_of_numbers(found)


def planner_for(session: Recording, framework: Framework, observer: Observer, lock: Any) -> Planner | None:
    """A planner where the framework can follow plans here."""
    plans = framework.plans()
    return None if plans is None else Planner(plans, session, framework, observer, lock)
