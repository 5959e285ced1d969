"""What a unit may not do: the lines that all units share, and what differs."""

from headrace.fleet.deploy.render.systemd.unit_text import Line, Remark


def hardening(*, needs_devices: bool, needs_home: bool) -> list[Line]:
    """Return the lines of [Service]. A process sees its own folders, the network and, with GPUs, the devices."""
    lines: list[Line] = [
        ("DynamicUser", "yes"),
        ("NoNewPrivileges", "yes"),
        ("CapabilityBoundingSet", ""),
        ("ProtectSystem", "strict"),
    ]
    if needs_home:
        lines.append(Remark("the program or the weights lie in a home folder"))
    lines += [
        ("ProtectHome", "read-only" if needs_home else "yes"),
        ("PrivateTmp", "yes"),
    ]
    if needs_devices:
        lines.append(
            Remark("GPUs: /dev/nvidia* must be there before (nvidia-persistenced, or nvidia-modprobe at boot)")
        )
        lines.append(Remark("no PrivateDevices, and no ProtectClock, which closes devices too"))
    else:
        lines += [("PrivateDevices", "yes"), ("ProtectClock", "yes")]
    lines += [
        ("ProtectHostname", "yes"),
        ("ProtectKernelTunables", "yes"),
        ("ProtectKernelModules", "yes"),
        ("ProtectKernelLogs", "yes"),
        ("ProtectControlGroups", "yes"),
        ("ProtectProc", "invisible"),
        ("RestrictSUIDSGID", "yes"),
        ("RestrictRealtime", "yes"),
        ("RestrictNamespaces", "yes"),
        ("RestrictAddressFamilies", "AF_INET AF_INET6 AF_UNIX AF_NETLINK"),
        ("LockPersonality", "yes"),
        ("SystemCallArchitectures", "native"),
        ("UMask", "0077"),
    ]
    return lines


def is_in_home(*paths: str) -> bool:
    """Tell whether a path lies where ProtectHome=yes hides it."""
    return any(path.startswith(("/home/", "/root/", "/run/user/")) for path in paths)
