"""How long the interop suite waits for servers and for official clients."""

from __future__ import annotations

# Longer than a server takes from its start to its first answer, on a machine that is busy with others.
START_TIMEOUT_S = 180
REGISTER_TIMEOUT_S = 120
# Longer than official clients take to notice anything, and to act on it, on a loaded machine: their
# heartbeats and their looks for routes come every 30 s, and their rebalances every 20 s; a call
# whose connection was lost they give up after 30 s, and pull again 3 s later.
CLIENT_TIMEOUT_S = 120
