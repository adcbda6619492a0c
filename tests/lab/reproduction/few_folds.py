"""Tables with the first folds alone, where all others would only say the same again."""

import dataclasses

from filtrax.lab.reproduction.tables import Average, Axis, Table


def few_folds(table: Table, folds: tuple[str, ...] = ("00", "01")) -> Table:
    """The table without the other folds; a table that has none stays as it is."""
    axes = [axis for axis in table.axes if axis.name == "fold"]
    if not axes:
        return table
    (axis,) = axes
    kept = Axis("fold", tuple(value for value in axis.values if value.label in folds))
    average = table.average
    if average is not None:
        sets = {name: tuple(f for f in own if f in folds) for name, own in average.sets.items()}
        average = Average("fold", sets)
    others = tuple(kept if one is axis else one for one in table.axes)
    return dataclasses.replace(table, axes=others, average=average)
