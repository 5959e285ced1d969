"""Max-min fair shares of a whole number of slots, with turns for what cannot be divided."""

from collections.abc import Mapping

TURN_S = 2.0
"""The slots left over by the division go to the next members after so long: long beside the 20 ms that a move costs."""


def fair_shares(amount: int, demands: Mapping[str, int], now_s: float) -> dict[str, int]:
    """Divide `amount` among members: none gets more than it demands, and none less than others that demand as much."""
    shares: dict[str, int] = {}
    left = max(0, amount)
    open_demands = sorted(demands.items(), key=lambda entry: (entry[1], entry[0]))
    while open_demands:
        share = left // len(open_demands)
        member, demand = open_demands[0]
        if demand > share:
            break
        shares[member] = demand
        left -= demand
        open_demands = open_demands[1:]
    if open_demands:
        share, rest = divmod(left, len(open_demands))
        turn = int(now_s // TURN_S)
        members = sorted(member for member, _ in open_demands)
        for index, member in enumerate(members):
            shares[member] = share + (1 if (index - turn) % len(members) < rest else 0)
    return shares
