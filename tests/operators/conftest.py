from tests.engine.conftest import inbox, set_conf

__all__ = ["inbox", "set_conf"]
