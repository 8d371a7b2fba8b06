"""The parameters that a file of weights lacks or holds beyond a model's, in a sentence that a person can read."""

from collections.abc import Collection, Iterable

MOST_NAMES = 3


def few_names(names: Iterable[str]) -> str:
    """Returns the first names, and how many more there are."""
    listed = list(names)
    more = len(listed) - MOST_NAMES
    return ", ".join(listed[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def foreign_weights(wanted: Collection[str], found: Collection[str]) -> str:
    """Returns what to report of weights that share no parameter with a model, empty where they share some."""
    if set(wanted) & set(found):
        return ""
    return (
        f"its weights hold none of this model's {len(wanted)} parameters, but {few_names(found) or 'nothing'}; they "
        "are of another recipe or network"
    )


def weights_fault(wanted: Collection[str], found: Collection[str]) -> str:
    """Returns which parameters are missing and which are too many, empty where they are those wanted."""
    lacking = [name for name in wanted if name not in found]
    beyond = [name for name in found if name not in wanted]
    differences = {"they lack": lacking, "they also hold": beyond}
    return "; ".join(f"{what} {few_names(names)}" for what, names in differences.items() if names)
