"""Connections to Ray clusters that ask for a token.

Whoever reaches a cluster without one runs code on all its machines, as its owner.
"""

import importlib
import os
from typing import Any

MODE = "RAY_AUTH_MODE"
"""The variable by which Ray is told to ask for a token."""

FIRST_VERSION = (2, 60)
"""The first version of Ray whose authentication was tried with filtrax."""


class InsecureClusterError(ConnectionError):
    """A cluster cannot be joined, or could be joined by anybody."""


def import_ray() -> Any:
    """Imports Ray, which asks for a token unless `RAY_AUTH_MODE` says otherwise by then."""
    os.environ.setdefault(MODE, "token")
    return importlib.import_module("ray")


def connect(ray: Any, address: str | None) -> None:
    """Starts a cluster on this machine, or joins the one at an address.

    Raises `InsecureClusterError` if it does not ask for a token, unless the user has set
    `RAY_AUTH_MODE=disabled`.
    """
    version = tuple(map(int, ray.__version__.split(".")[:2]))
    if version < FIRST_VERSION:
        wanted = ".".join(map(str, FIRST_VERSION))
        raise InsecureClusterError(
            f"Ray must be of version {wanted} or later, whose clusters ask for a token, got "
            f"{ray.__version__}: pip install 'ray>={wanted}'."
        )
    insists = os.environ.get(MODE, "").lower() == "disabled"
    try:
        ray.init(address=address, log_to_driver=False, configure_logging=False)
    except (ray.exceptions.AuthenticationError, ConnectionError) as error:
        raise InsecureClusterError(
            f"The cluster at {address} could not be joined: it must run, and have the token of "
            "this machine. `ray get-auth-token --generate` makes one; copy ~/.ray/auth_token to "
            "all machines before the cluster starts."
        ) from error
    # A cluster that asks for none takes a token, too, so ask one of its processes.
    if not insists and ray.get(ray.remote(num_cpus=0)(_mode).remote()) != "token":
        ray.shutdown()
        raise InsecureClusterError(
            f"The cluster at {address} must ask for a token, because anybody who reaches it can "
            f"run code on it: start it with {MODE}=token. If its network is as safe as one "
            f"machine, set {MODE}=disabled here."
        )


def _mode() -> str:
    return os.environ.get(MODE, "").lower()
