"""Control from outside the Python process: a REST server in the driver, its page, and what both have to say."""

from midstream.control.gate import Limits
from midstream.control.security import Tls, Tokens
from midstream.control.server import ControlServer, ServeOptions, serve

__all__ = ["ControlServer", "Limits", "ServeOptions", "Tls", "Tokens", "serve"]
