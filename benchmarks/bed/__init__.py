"""A test bed on loopback: HTTP backends of known speed in processes of their own, a load tool, scenarios, and the proxy.

:mod:`.backends` serves, :mod:`.driver` asks (it wants ``wrk``), :mod:`.scenarios` says what happens, :mod:`.compared` runs the
same scenario through every rule at once. Everything keeps to 127.0.0.1 and ends by itself.
"""
