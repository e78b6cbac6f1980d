"""Control from outside the Python process: a REST server in the driver, its page, and what both have to say."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from midstream.control.gate import Limits
    from midstream.control.security import Tls, Tokens
    from midstream.control.server import ControlServer, ServeOptions, serve

__all__ = ["ControlServer", "Limits", "ServeOptions", "Tls", "Tokens", "serve"]

_HOMES = {"Limits": "gate", "Tls": "security", "Tokens": "security"}


def __getattr__(name: str) -> Any:
    """Loaded when it is asked for: commands want the models only, and no server."""
    if name not in __all__:
        raise AttributeError(name)
    from importlib import import_module

    return getattr(import_module(f"midstream.control.{_HOMES.get(name, 'server')}"), name)
