"""Addresses of servers and peers, as `host:port` text."""

from __future__ import annotations

from orbitmq.errors import SettingsError


def parse_address(text: str) -> tuple[str, int]:
    """Split `host:port`, where an IPv6 host is in brackets."""
    host, colon, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        # Without brackets it is unclear where an IPv6 host ends.
        host = ""
    port_is_number = port.isascii() and port.isdigit() and len(port) <= 5
    if not colon or not host or not port_is_number or not 0 < int(port) <= 65535:
        raise SettingsError(
            f"{text!r} is not an address",
            hint="separate addresses with semicolons, as in a:9876;b:9876"
            if "," in text
            else "write host:port, for example 127.0.0.1:9876 or [::1]:9876",
        )
    return host, int(port)


def parse_addresses(text: str) -> list[str]:
    """Split a list of addresses separated by semicolons, and check each."""
    # Compat: RocketMQ accepts an address with a scheme and uses what follows its last slash.
    addresses = [part.strip().rpartition("/")[2] for part in text.split(";") if part.strip()]
    for address in addresses:
        parse_address(address)
    return addresses


def format_address(peer: object) -> str:
    """Write a socket's peer as host:port."""
    if isinstance(peer, tuple) and len(peer) >= 2:
        host, port = peer[:2]
        return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return str(peer or "unknown peer")
