"""Descriptions of the machine, its memory, and its energy counters."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation.efficiency import Hardware, describe, hardware, meters
from evaluation.efficiency.hardware import cpu_model
from evaluation.efficiency.meters import open_meter, peak_memory


def test_a_hardware_class_is_its_processor_cores_gpu_and_libraries() -> None:
    here = describe(2)
    assert here == describe(2)
    assert here.slug != describe(1).slug
    assert here.name.endswith(", 2 cores")
    assert here.details["gpu"] is None
    assert here.details["libraries"]["numpy"] == np.__version__
    assert Hardware.from_data(json.loads(json.dumps(here.as_data()))) == here
    other = {**here.details, "libraries": {"numpy": "1.0"}}
    assert Hardware.from_details(other).slug != here.slug


def test_a_made_up_slug_is_not_believed() -> None:
    here = describe(2)
    assert Hardware.from_data({"slug": "../../etc", "name": "x", "details": here.details}) == here
    with pytest.raises(ValueError, match="cores"):
        Hardware.from_data({"details": {"cores": 0}})


def test_the_processors_name_comes_without_decoration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(hardware, "CPU_INFO", info)
    info.write_text("processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Gold 6248 CPU @ 2.50GHz\n")
    assert cpu_model() == "Intel Xeon Gold 6248"
    info.write_text("model name\t: AMD EPYC 7763 64-Core Processor\n")
    assert cpu_model() == "AMD EPYC 7763"
    info.write_text("processor\t: 0\n")
    assert cpu_model()


def test_peak_memory_is_the_high_water_mark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    status = tmp_path / "status"
    monkeypatch.setattr(meters, "STATUS", status)
    status.write_text("Name:\tpython\nVmPeak:\t  900 kB\nVmHWM:\t  123 kB\nVmRSS:\t  100 kB\n")
    assert peak_memory() == 123 * 1024
    status.unlink()
    assert peak_memory() > 0


def test_a_package_counter_that_starts_again_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meters, "POWERCAP", tmp_path)
    package = tmp_path / "intel-rapl:0"
    (tmp_path / "intel-rapl:0:0").mkdir()
    package.mkdir()
    (package / "max_energy_range_uj").write_text("10000000\n")
    (package / "energy_uj").write_text("9000000\n")
    meter = open_meter("cpu")
    assert (meter.source, meter.joules()) == ("CPU", 9.0)
    (package / "energy_uj").write_text("1000000\n")
    assert meter.joules() == 11.0
    monkeypatch.setattr(meters, "POWERCAP", tmp_path / "none")
    assert open_meter("cpu").joules() is None
