"""`headrace render systemd`: one unit for each replica and for the gateway, and the files that they read.

The files lie below the folder as they lie below `/` on the machine.
"""
