"""What is read from the answers of a machine."""

from headrace.fleet.deploy.preflight.facts import read_files, read_machine, read_model


def test_nothing_said_is_nothing_known() -> None:
    """A machine that answered nothing has no GPU, and all else is unknown rather than zero."""
    machine = read_machine({})
    assert (machine.gpus, machine.driver_cuda, machine.shm_bytes, machine.ports) == ((), None, None, None)
    assert (machine.disk, machine.interfaces, machine.clock_offset_s, machine.open_files) == (None, None, None, None)


def test_gpus_and_driver_are_read_from_nvidia_smi() -> None:
    """Names, memory and capability; a line that is an error message is no GPU."""
    machine = read_machine(
        {
            "gpus.csv": "0, NVIDIA L4, 570.1, 23034, 12, 8.9\nFailed to initialize NVML: version mismatch\n",
            "nvidia-smi.txt": "| NVIDIA-SMI 570.1   Driver Version: 570.1   CUDA Version: 12.8  |",
        }
    )
    (gpu,) = machine.gpus
    assert (gpu.name, gpu.total_bytes, gpu.used_bytes, gpu.capability) == ("NVIDIA L4", 23034 * 2**20, 12 * 2**20, 89)
    assert (machine.driver, machine.driver_cuda) == ("570.1", (12, 8))


def test_the_topology_matrix_is_read_with_its_colours() -> None:
    """nvidia-smi underlines the column heads; NICs beside the GPUs are skipped."""
    text = (
        "\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m\n"
        "GPU0\t X \tNV18\tPIX\t0-31\t0\n"
        "GPU1\tNV18\t X \tSYS\t32-63\t1\n"
        "NIC0\tPIX\tSYS\t X \t\t\n"
    )
    machine = read_machine({"topology.txt": text})
    assert machine.links == {(0, 1): "NV18", (1, 0): "NV18"}
    assert machine.numa == {0: "0", 1: "1"}


def test_listening_ports_limits_and_clock() -> None:
    """Only listening sockets count; unlimited is -1; timedatectl says whether anything keeps the time."""
    machine = read_machine(
        {
            "ports.txt": "  0: 0100007F:1F90 00000000:0000 0A\n  1: 0100007F:1F91 0100007F:1234 01\n",
            "limits.txt": "Max open files    1024    4096    files\nMax locked memory   unlimited  unlimited  bytes\n",
            "clock.txt": "Timezone=UTC\nNTPSynchronized=no\n",
            "interfaces.txt": "eth0/operstate:up\neth1/operstate:down\nlo/operstate:unknown\n",
            "runtimes.txt": "/usr/bin/docker\n/usr/bin/nvidia-ctk\n",
        }
    )
    assert machine.ports == frozenset((8080,))
    assert (machine.open_files, machine.locked_bytes) == (1024, -1)
    assert machine.is_clock_synchronized is False
    assert machine.interfaces == {"eth0": True, "eth1": False, "lo": True}
    assert machine.runtimes == frozenset(("docker", "nvidia"))


def test_a_broken_config_is_said_to_be_unreadable() -> None:
    """A config.json that is cut off, or of a kind that is not known, leaves the model unsized, with the reason."""
    cut = read_model("/m", {"config.json": '{"model_type": "ll'}, files={})
    assert (cut.architecture, cut.unread) == (None, "no config.json that can be read")
    strange = read_model("/m", {"config.json": '{"model_type": "new", "hidden_size": 1}'}, files={})
    assert strange.architecture is None
    assert "num_hidden_layers" in strange.unread


def test_files_are_listed_with_their_sizes() -> None:
    """Names may hold spaces."""
    assert read_files("12 a b.json\n0 c\nnot a line\n") == {"a b.json": 12, "c": 0}
