"""Judges the paper's claims by the records of cells.

A difference counts if it exceeds two standard errors of the difference, √(a² + b²) for the
standard errors a and b of both means. A mean over a single seed has no standard error; then the
sign of the difference decides, and the verdict counts such comparisons.

Means over an averaged axis, like the folds of a cross-validation, are compared on their common
labels. Folds differ more than methods, so the standard error is that of the paired differences.
"""

import dataclasses
import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from filtrax.lab.measures import Measured
from filtrax.lab.reproduction.axes import Place
from filtrax.lab.reproduction.comparing import (
    Compare,
    Outcome,
    both,
    likeness,
    order,
    paired,
    part_of,
    spread,
)
from filtrax.lab.reproduction.rules import Claim, Rule, Selection, chosen, matches
from filtrax.lab.reproduction.tables import Table
from filtrax.lab.reproduction.values import (
    Record,
    lost,
    lost_at,
    measured,
    measured_at,
)

__all__ = ["Claim", "Finding", "Measured", "Rule", "Verdict", "judge", "lost", "measured"]

Labels = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Finding:
    """The outcome of one comparison of a rule.

    - `outcome`: "holds", "contradicts", "open" if the difference is within two standard errors,
      or "missing" if a cell has no numbers.
    - `line`: a description of the comparison.
    - `by_sign`: True if the sign decided, because there is no standard error.
    """

    outcome: Outcome
    line: str
    by_sign: bool = False


@dataclasses.dataclass(frozen=True)
class Verdict:
    """The verdict on a claim."""

    findings: tuple[Finding, ...]

    @property
    def verdict(self) -> str:
        """One of "holds", "partly", "does not hold here" and "not run"."""
        if not self.judged:
            return "not run"
        if self.holding == self.judged:
            return "holds"
        return "partly" if self.holding else "does not hold here"

    @property
    def judged(self) -> int:
        """The number of comparisons with numbers."""
        return len(self.findings) - self.missing

    @property
    def holding(self) -> int:
        """The number of comparisons that support the claim."""
        return self._count("holds")

    @property
    def open(self) -> int:
        """The number of comparisons that are undecided."""
        return self._count("open")

    @property
    def contradicting(self) -> int:
        """The number of comparisons that contradict the claim."""
        return self._count("contradicts")

    @property
    def missing(self) -> int:
        """The number of comparisons without numbers."""
        return self._count("missing")

    @property
    def by_sign(self) -> int:
        """The number of comparisons decided by sign, because there is no standard error."""
        return sum(finding.by_sign for finding in self.findings)

    @property
    def details(self) -> list[str]:
        """Outcomes and descriptions of all comparisons."""
        return [f"{finding.outcome}: {finding.line}" for finding in self.findings]

    def _count(self, outcome: Outcome) -> int:
        return sum(finding.outcome == outcome for finding in self.findings)


def judge(
    claim: Claim,
    table: Table,
    records: Mapping[str, Record],
    within: Mapping[str, str] | None = None,
) -> Verdict:
    """Evaluates the rules of a claim.

    **Arguments:**

    - `claim`, `table`: the claim, and the table that it belongs to.
    - `records`: records by the names of their cells.
    - `within`: labels of the cells to consider, as in `{"column": "filtrax"}`. If the rules select
      none of them, the verdict has no findings.
    """
    judged = _Judge(table, records, dict(within or {}))
    return Verdict(tuple(finding for rule in claim.rules for finding in judged.findings(rule)))


@dataclasses.dataclass(frozen=True)
class _Group:
    """Places whose metrics are summed; a single one unless the rule has a `total`."""

    labels: Labels
    places: Sequence[Place]


@dataclasses.dataclass(frozen=True)
class _Judge:
    """Evaluates rules on the records of a table."""

    table: Table
    records: Mapping[str, Record]
    within: Labels

    def findings(self, rule: Rule) -> Iterator[Finding]:
        groups = self._groups(rule)
        if rule.lower is not None and rule.higher is not None:
            return self._order(rule, groups, rule.lower, rule.higher)
        if rule.same is not None:
            return self._same(rule, groups, rule.same)
        if rule.best is not None and rule.of is not None:
            return self._best(rule, groups, rule.best, rule.of)
        if rule.refused is not None:
            return self._refused(groups, rule.refused)
        return self._bounds(rule, groups)

    def _groups(self, rule: Rule) -> list[_Group]:
        """Groups the places that a rule selects by all axes but those in `total`."""
        found: dict[tuple[str, ...], _Group] = {}
        for place in self.table.places():
            if not (matches(place.labels, self.within) and matches(place.labels, rule.where)):
                continue
            kept = {name: label for name, label in place.labels.items() if name not in rule.total}
            group = found.setdefault((*kept.values(),), _Group(kept, []))
            found[(*kept.values(),)] = _Group(kept, [*group.places, place])
        return list(found.values())

    def _order(
        self, rule: Rule, groups: Sequence[_Group], lower: Selection, higher: Selection
    ) -> Iterator[Finding]:
        for group in _combinations(groups, {*lower, *higher}):
            lows = [entry for entry in group if matches(entry.labels, lower)]
            highs = [entry for entry in group if matches(entry.labels, higher)]
            for low, high in itertools.product(lows, highs):
                yield self._pair(rule, low, high, "is below", order)

    def _same(
        self, rule: Rule, groups: Sequence[_Group], selection: Selection
    ) -> Iterator[Finding]:
        for group in _combinations(groups, {*selection}):
            alike = [entry for entry in group if matches(entry.labels, selection)]
            for one, other in itertools.combinations(alike, 2):
                yield self._pair(rule, one, other, "is the same as", likeness(rule.tolerance))

    def _best(
        self, rule: Rule, groups: Sequence[_Group], best: Selection, of: Selection
    ) -> Iterator[Finding]:
        for group in _combinations(groups, {*best, *of, *(rule.over or {})}):
            candidates = [entry for entry in group if matches(entry.labels, best)]
            known = [(entry, self._value(entry, rule.metric)) for entry in candidates]
            found = [(entry, value) for entry, value in known if value is not None]
            start = self._start(rule, group)
            for other in (entry for entry in group if matches(entry.labels, of)):
                limit = part_of(rule.share, self._value(other, rule.metric), start)
                line = f"is below {rule.share:g} times that of {self._words(other)}"
                line += f", counted from {_selected(rule.over)}" if rule.over else ""
                if not found or limit is None:
                    yield Finding("missing", f"the lowest {rule.metric} {line}")
                    continue
                lowest, value = min(found, key=lambda pair: pair[1].value)
                line = f"{rule.metric} of {self._words(lowest)} ({value}) {line} ({limit})"
                yield Finding(order(value, limit), line, spread(value, limit) is None)

    def _start(self, rule: Rule, group: Sequence[_Group]) -> Measured | None:
        """Returns the value of the cell in `over`, or 0 without `over`; None if it is missing."""
        if rule.over is None:
            return Measured(0.0, 0.0)
        found = [entry for entry in group if matches(entry.labels, rule.over)]
        return self._value(found[0], rule.metric) if len(found) == 1 else None

    def _bounds(self, rule: Rule, groups: Sequence[_Group]) -> Iterator[Finding]:
        for group in groups:
            ours = self._value(group, rule.metric)
            name = f"{rule.metric} of {self._words(group)}"
            for bound, word in ((rule.below, "below"), (rule.above, "above")):
                if bound is None:
                    continue
                if ours is None:
                    yield Finding("missing", f"{name} is {word} {bound:g}")
                    continue
                limit = Measured(bound, 0.0)
                pair = (ours, limit) if word == "below" else (limit, ours)
                line = f"{name} ({ours}) is {word} {bound:g}"
                yield Finding(order(*pair), line, ours.error is None)

    def _refused(self, groups: Sequence[_Group], selection: Selection) -> Iterator[Finding]:
        for group in groups:
            if not matches(group.labels, selection):
                continue
            names = [name for place in group.places for name in place.cells.values()]
            known = [self.records[name] for name in names if name in self.records]
            outcome = "holds" if all("refused" in record for record in known) else "contradicts"
            yield Finding(outcome if known else "missing", f"{self._words(group)} is refused")

    def _pair(self, rule: Rule, one: _Group, other: _Group, verb: str, compare: Compare) -> Finding:
        values = self._value(one, rule.metric), self._value(other, rule.metric)
        names = self._words(one), self._words(other)
        alike = both(*values, common=self._is_same_mean(one, other))
        if alike is None:
            return Finding("missing", f"{rule.metric} of {names[0]} {verb} that of {names[1]}")
        line = f"{rule.metric} of {names[0]} ({alike[0]}) {verb} that of {names[1]} ({alike[1]})"
        gap = paired(*alike)
        line += "" if gap is None else f", by {gap} on each"
        return Finding(compare(*alike), line, spread(*alike) is None)

    def _is_same_mean(self, one: _Group, other: _Group) -> bool:
        """Returns True if both are means over the same set of labels of the averaged axis."""
        average = self.table.average
        return average is not None and (
            one.labels.get(average.axis) == other.labels.get(average.axis)
        )

    def _value(self, group: _Group, metric: str) -> Measured | None:
        """Sums the metric over a group; None if any of its places lacks it."""
        if metric == "lost":
            counts = lost(self.table, self.records)
            return _sum([lost_at(place, counts) for place in group.places])
        return _sum([measured_at(place, self.records, metric) for place in group.places])

    def _words(self, group: _Group) -> str:
        named = {name: label for name, label in group.labels.items() if name not in self.within}
        return ", ".join(f"{name} {label}" for name, label in named.items())


def _selected(selection: Selection) -> str:
    return ", ".join(f"{axis} {' or '.join(chosen(names))}" for axis, names in selection.items())


def _combinations(groups: Iterable[_Group], named: set[str]) -> list[list[_Group]]:
    """Partitions groups into lists that agree on all axes but the named ones."""
    found: dict[tuple[str, ...], list[_Group]] = {}
    for group in groups:
        rest = tuple(label for name, label in group.labels.items() if name not in named)
        found.setdefault(rest, []).append(group)
    return list(found.values())


def _sum(values: Sequence[Measured | None]) -> Measured | None:
    if len(values) == 1:
        return values[0]
    known = [value for value in values if value is not None]
    if len(known) < len(values):
        return None
    errors = [value.error for value in known if value.error is not None]
    error = math.hypot(*errors) if len(errors) == len(known) else None
    return Measured(sum(value.value for value in known), error)
