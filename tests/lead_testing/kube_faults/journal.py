"""What passed between operator and API server in one trial: calls, events, and the faults that were met."""

from collections import Counter
from dataclasses import dataclass, field

from lead_testing.kube_faults.plan import Fault


@dataclass
class Journal:
    """What passed, for the learn pass and for counting."""

    calls: list[tuple[str, str, int, str]] = field(default_factory=list)  # site, name, status (0: none), fault
    events: list[tuple[str, str, str]] = field(default_factory=list)  # resource, type, name
    fired: list[Fault] = field(default_factory=list)

    def writes(self, *, of: str = "") -> list[str]:
        """Returns the sites of all writes that reached the API server, in order; `of`: only about this object."""
        verbs = ("create", "update", "patch", "delete")
        return [
            site
            for site, name, status, _ in self.calls
            if status and site.split()[0] in verbs and not site.endswith("leases") and of in name
        ]

    def sites(self) -> Counter[str]:
        """Counts the calls about objects by site, leases and watches apart."""
        about = (site for site, _, _, _ in self.calls)
        return Counter(site for site in about if not site.startswith("watch") and not site.endswith((" ", "leases")))
