"""A pipeline in each state, and the health that GitOps tools show for it."""

from __future__ import annotations

from unit.gitops.states import states

STATES = states()
# The health of Argo CD, and the status of kstatus.
EXPECTED = {
    "delivering": ("Healthy", "Current"),
    "completed": ("Healthy", "Current"),
    "scheduled": ("Healthy", "Current"),
    "new": ("Progressing", "InProgress"),
    "starting": ("Progressing", "InProgress"),
    "draining": ("Progressing", "InProgress"),
    "edited": ("Progressing", "InProgress"),
    "deleted": ("Progressing", "Terminating"),
    "suspended": ("Suspended", "InProgress"),  # kstatus has no word for it
    "guarantee-not-met": ("Degraded", "InProgress"),  # it recovers when the brokers are back
    "suspended-guarantee-not-met": ("Degraded", "InProgress"),
    "invalid": ("Degraded", "Failed"),
    "never-valid": ("Degraded", "Failed"),
    "stalled": ("Degraded", "Failed"),
    # The API server never returns this, because the CRD sets a default status for this reason.
    "without-status": ("Progressing", "Current"),
}
