"""Pages that tell of a machine: known names in our units, and nothing that no machine can have."""

from __future__ import annotations

import pytest

from bench.engines.machine import GAUGES, MAX_CHARS, MOST_DEVICES, gauges_of, read_machine

DCGM = """# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu="0",UUID="GPU-a",device="nvidia0",modelName="GPU of ours",Hostname="h"} 98
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b",device="nvidia1",modelName="GPU of ours",Hostname="h"} 50
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a"} 30000
DCGM_FI_DEV_FB_USED{gpu="1",UUID="GPU-b"} 29000
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a"} 271.25
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b"} 244.5
DCGM_FI_PROF_DRAM_ACTIVE{gpu="0",UUID="GPU-a"} 0.75
DCGM_FI_DEV_XID_ERRORS{gpu="0",UUID="GPU-a"} 0
"""


def test_a_dcgm_page_gives_gauges_by_gpu_in_our_units() -> None:
    found, problem = read_machine(DCGM)
    assert problem is None
    assert found == {
        "gpu_utilisation.0": pytest.approx(0.98),
        "gpu_utilisation.1": pytest.approx(0.50),
        "gpu_memory_used.0": 30_000 * 1_048_576,
        "gpu_memory_used.1": 29_000 * 1_048_576,
        "gpu_power.0": 271.25,
        "gpu_power.1": 244.5,
        "gpu_dram_active.0": 0.75,
    }
    assert gauges_of(found) == {
        "gpu_utilisation": 2,
        "gpu_memory_used": 2,
        "gpu_power": 2,
        "gpu_dram_active": 1,
    }


def test_node_exporter_and_nvidia_gpu_exporter_are_known() -> None:
    page = """node_load1 3.5
node_memory_MemTotal_bytes 6.4e+10
node_memory_MemAvailable_bytes 4.4e+10
nvidia_smi_power_draw_watts{uuid="GPU-1"} 12
nvidia_smi_utilization_gpu_ratio{uuid="GPU-1"} 0.25
nvidia_smi_memory_used_bytes{uuid="GPU-1"} 1000
"""
    assert read_machine(page)[0] == {
        "gpu_utilisation.GPU-1": 0.25,
        "gpu_memory_used.GPU-1": 1000,
        "gpu_power.GPU-1": 12,
        "host_load": 3.5,
        "host_memory_used": 2e10,
    }


def test_two_exporters_names_on_one_page_are_not_added_up() -> None:
    both = DCGM + 'nvidia_smi_power_draw_watts{uuid="GPU-a"} 271\n'
    assert "gpu_power.GPU-a" not in read_machine(both)[0]


@pytest.mark.parametrize("value", ["9223372036854775794", "-1", "NaN", "+Inf", "101", "lots"])
def test_what_no_machine_can_have_is_absent(value: str) -> None:
    found, problem = read_machine(f'DCGM_FI_DEV_GPU_UTIL{{gpu="0"}} {value}\n')
    assert found == {}
    assert problem is not None and "no gauge" in problem


@pytest.mark.parametrize(
    ("page", "problem"),
    [
        ("", "no gauge of a GPU or host"),
        ("vllm:num_requests_running 1\n", "no gauge of a GPU or host"),
        ("<html>login</html>", "JSON or HTML"),
        ('{"error": 1}', "JSON or HTML"),
        ("\x00\xff" * 100, "no gauge"),
        ("# " + "x" * MAX_CHARS, "more than 4,000,000"),
        ('DCGM_FI_DEV_GPU_UTIL{gpu="' + "9" * 100_000 + '"} 1\n', "no gauge"),
    ],
)
def test_a_page_without_a_machine_says_why(page: str, problem: str) -> None:
    found, said = read_machine(page)
    assert found == {} and said is not None and problem in said


def test_devices_are_bounded_and_their_names_harmless() -> None:
    page = "".join(f'DCGM_FI_DEV_POWER_USAGE{{gpu="{number}"}} 5\n' for number in range(1_000))
    assert len(read_machine(page)[0]) == MOST_DEVICES
    (name,) = read_machine('DCGM_FI_DEV_POWER_USAGE{gpu="<script>|' + "x" * 60 + '"} 5\n')[0]
    assert name == "gpu_power._script__" + "x" * 31
    assert name.partition(".")[0] in GAUGES


@pytest.mark.parametrize("filler", [" ", "{", "}", ",", '"', 'gpu="'])
def test_hostile_lines_of_known_names_cost_no_more_than_their_length(filler: str) -> None:
    line = "DCGM_FI_DEV_GPU_UTIL{" + filler * (4_000 // len(filler)) + "\n"
    found, problem = read_machine(line * 900)  # a test that hangs here has found a line that costs too much
    assert found == {} and problem is not None
