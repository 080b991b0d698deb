"""Requests as text, for the steps of a trace."""

from __future__ import annotations

from .brokers import Request

NAMES = {
    "A": "AddPartitionsToTxn",
    "L": "AddPartitionsToTxn(lanes topic)",
    "O": "AddOffsetsToTxn",
    "B": "AddPartitionsToTxn+AddOffsetsToTxn",
    "E": "EndTxn(commit)",
    "M": "Produce the lane's record",
}


def describe(m: Request) -> str:
    """A request as text."""
    k, args = m[0], m[4:]
    outside = {"I": "InitProducerId", "N": "Produce the lane's record outside a transaction"}
    if k in outside:
        return outside[k]
    if k == "C":
        return f"OffsetCommit({args[0]}) outside a transaction"
    name = f"Produce [{args[1]},{args[2]})" if k == "P" else f"TxnOffsetCommit({args[0]})" if k == "T" else NAMES[k]
    return f"{name} by producer {m[2]}, epoch {m[3]}"
