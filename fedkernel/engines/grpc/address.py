"""Check of network addresses of the form HOST:PORT, as a user writes them."""

import ipaddress

from fedkernel.ground import InputError


def check_address(address: str, *, any_port: bool = False) -> str:
    """Return an address if it is valid, else raise InputError. `any_port`: allow port 0, any free one of a listener."""
    host, colon, port = address.rpartition(":")
    if not (host and colon and port.isdecimal() and (0 if any_port else 1) <= int(port) < 1 << 16):
        raise InputError(f"address = {address!r}, but must be HOST:PORT, such as 127.0.0.1:8443")
    return address


def is_loopback(address: str) -> bool:
    """Return whether an address is a loopback address, on this machine only."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
