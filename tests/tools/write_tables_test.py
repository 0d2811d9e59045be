# SPDX-License-Identifier: Apache-2.0
"""Renders made-up records; their figures were measured nowhere."""

import json
import sys
import tempfile
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tools"))
import write_tables

DOCUMENT = "before\n<!-- table {name} -->\nold\n<!-- end -->\nafter\n"


def result(**changes):
    return {
        "batch": 16,
        "heads": 32,
        "rank": 4,
        "layout": "compact",
        "due": "all",
        "threads": 1,
        "median_us": 32.0,
        "fraction_of_limit": 0.25,
        "due_programs": 512,
        "stream_us": 8.0,
        **changes,
    }


def cuda_record(*results):
    return {
        "backend": "cuda",
        "target": "sm_00",
        "device": "a device",
        "commit": "c0ffee",
        "date": "2000-01-02T03:04:05Z",
        "command": "leapquant bench",
        "gpu": {"driver": "1.2", "cuda_runtime": "3.4", "sm_clock_mhz": 5, "memory_clock_mhz": 6},
        "results": results,
    }


class WriteTables(unittest.TestCase):
    def filled(self, name, record=None):
        with tempfile.TemporaryDirectory() as folder:
            if record is not None:
                Path(folder, f"{name}.json").write_text(json.dumps(record), encoding="utf-8")
            return write_tables.filled(DOCUMENT.format(name=name), Path(folder)).splitlines()

    def test_a_row_holds_the_due_shares_of_one_batch(self):
        none = {"due_programs": 0, "stream_us": 0.0, "fraction_of_limit": 0.0}
        record = cuda_record(
            result(),
            result(due="1/16", median_us=3.0, due_programs=31),
            result(due="none", median_us=2.5, **none),
            result(batch=32, median_us=60.0, stream_us=15.0),
        )
        lines = self.filled("cuda-kda-flush", record)
        self.assertEqual(lines[:2], ["before", "<!-- table cuda-kda-flush -->"])
        for part in (
            "a device, sm_00, commit c0ffee, 2000-01-02;",
            "driver 1.2,",
            "32 heads, rank 4, compact",
            "`leap",
        ):
            self.assertIn(part, lines[2])
        self.assertEqual(lines[6], "| 16 | 8.0 | 32.0 | 25.0 % | 3.0 | 1.50 | 2.5 |")
        self.assertEqual(lines[7], "| 32 | 15.0 | 60.0 | 25.0 % | - | - | - |")
        self.assertEqual(lines[8:], ["<!-- end -->", "after"])

    def test_a_row_holds_step_and_cycle_of_one_batch(self):
        shared = {"heads": 32, "rank": 4, "layout": "compact", "median_us": 20.0}
        step = {**shared, "op": "step", "step_stream_us": 10.0, "fraction_of_limit": 0.5}
        cycle = {**shared, "op": "cycle", "step_stream_us": 9.0, "flush_stream_us": 6.0, "fraction_of_limit": 0.75}
        record = cuda_record({**step, "batch": 16}, {**cycle, "batch": 16}, {**step, "batch": 32})
        lines = self.filled("cuda-kda-step", record)
        self.assertEqual(lines[6], "| 16 | 10.0 | 20.0 | 50.0 % | 15.0 | 20.0 | 75.0 % |")
        self.assertEqual(lines[7], "| 32 | 10.0 | 20.0 | 50.0 % | - | - | - |")

    def test_a_table_by_batch_mixes_no_geometries(self):
        with self.assertRaisesRegex(SystemExit, "'heads'"):
            self.filled("cuda-kda-flush", cuda_record(result(), result(heads=8)))

    def test_geometries_are_held_against_the_published_one(self):
        few = result(heads=8, batch=64, rank=1, layout="padded", due_programs=512, median_us=16.0, stream_us=7.0)
        record = cuda_record(few, result(), result(due="none", due_programs=0))
        lines = self.filled("cuda-kda-flush-geometries", record)
        self.assertEqual(lines[6], "| 8 | 64 | 1 | padded | 7.0 | 16.0 | 25.0 % | 31.2 | 0.500 |")
        self.assertEqual(lines[7], "| 32 | 16 | 4 | compact | 8.0 | 32.0 | 25.0 % | 62.5 | 1.000 |")
        self.assertEqual(lines[8], "<!-- end -->")

    def test_cpu(self):
        limits = {
            "by_threads": [{"threads": 1, "multiply_adds_per_s": 2e9, "memory_bytes_per_s": 3e9}],
            "reference_us_per_program": 10.0,
        }
        fractions = {"multiply_add_fraction": 0.5, "memory_fraction": 0.0}
        record = {**cuda_record(result(**fractions), result(due="none", due_programs=0, **fractions)), "limits": limits}
        lines = self.filled("cpu-kda-flush", record)
        self.assertEqual(lines[6], "| 16 | 1 | compact | all | 160x | 50 % | in cache |")
        self.assertEqual(lines[7], "| 16 | 1 | compact | none | - | - | - |")

    def test_python_on_a_gpu_and_without(self):
        row = {"batch": 16, "eager": 80.0, "compiled": 40.0, "run": 20.0, "flush_inplace": 10.0, "strict_use": 0.5}
        host = {"host": 3.0, "host_unlaunched": 1.0, "host_torch_add": 2.0}
        record = {**cuda_record(), "torch": "2", "threads": 1, "family": "random", "heads": 32, "rank": 4}
        lines = self.filled("python-compare-cuda", {**record, "cuda": "13", "results": [{**row, **host}]})
        self.assertIn("a device, 1 thread(s), PyTorch 2, commit c0ffee, 2000-01-02; 32 heads, rank 4", lines[2])
        self.assertEqual(lines[6], "| 16 | 80.0 | 40.0 | 20.0 | 10.0 | 4.0x | 2.0x | 3.0 | 1.0 | 2.0 | 0.5000 |")
        lines = self.filled("python-compare-cpu", {**record, "cuda": None, "results": [row]})
        self.assertEqual(lines[6], "| 16 | 80.0 | 40.0 | 20.0 | 10.0 | 4.0x | 2.0x | 0.5000 |")

    def test_judged_families_show_their_largest_figures(self):
        figures = {"library": "torch-cuda", "gate": "kda", "family": "random", "heads": 32}
        small = {**figures, "batch": 16, "strict_ratio": 1.0, "strict_use": 0.9, "averaged_use": 0.8}
        large = {**figures, "batch": 32, "strict_ratio": 1.001, "strict_use": 0.7, "averaged_use": 0.6}
        others = [{**small, "batch": 2, "strict_use": 2.0}, {**small, "library": "numpy", "strict_use": 2.0}]
        others.append({**small, "gate": "gdn", "strict_use": 0.5})
        lines = self.filled("python-judge-cuda", {**cuda_record(small, large, *others), "torch": "2"})
        self.assertEqual(lines[6], "| kda | random | 2 | 1536 | 1.0010 | 0.9000 | 0.8000 |")
        self.assertEqual(lines[7], "| gdn | random | 1 | 512 | 1.0000 | 0.5000 | 0.8000 |")
        self.assertEqual(lines[8], "<!-- end -->")

    def test_step(self):
        limits = {"by_threads": [{"threads": 2, "memory_bytes_per_s": 3e9, "read_bytes_per_s": 4e9}]}
        row = {
            **result(threads=2),
            "pool_bytes": 8_000_000,
            "bytes": 64_000,
            "fraction_of_read_limit": 0.5,
            "fp32_bytes": 320_000,
            "fp32_median_us": 80.0,
            "speedup": 2.5,
        }
        lines = self.filled("cpu-kda-step", {**cuda_record(row), "limits": limits})
        self.assertIn("2 thread(s) 4 GB/s read, 3 GB/s read and written", lines[2])
        self.assertEqual(lines[6], "| 16 | 2 | 8 MB | 2 GB/s | 50 % | 4 GB/s | 2.50x |")

    def test_drift(self):
        state = {"state": "fp32", "state_error": [8.0, 1e-2, 9.0, 9.0, 9.0, 9.0, 9.0, 2e-2], "output_error": [1e-3] * 8}
        profile = {"name": "slow", "states": [state]}
        record = {**cuda_record(), "tokens": 64, "profiles": [profile]}
        lines = self.filled("drift", record)
        self.assertIn("64 tokens, backend cuda (sm_00), commit c0ffee", lines[2])
        self.assertEqual(lines[6], "| slow | fp32 | 1.0e-02 | 2.0e-02 | 1.0e-03 | 1.0e-03 |")

    def test_tiny_lm(self):
        record = {
            "device": "a device",
            "threads": 1,
            "arrays": "numpy 2.0",
            "commit": "c0ffee",
            "date": "2000-01-02T03:04:05Z",
            "sequences": 3,
            "bytes_a_sequence": 64,
            "command": "python examples/tiny_lm score",
            "results": [
                {"states": "bf16", "bits_per_byte": 1.5, "kl": 0.00025, "bytes": 262144, "tokens_per_s": 123.4}
            ],
        }
        lines = self.filled("tiny-lm", record)
        self.assertIn("a device, 1 thread(s), numpy 2.0, commit c0ffee, 2000-01-02; 3 sequences of 64 bytes", lines[2])
        self.assertEqual(lines[6], "| bf16 | 1.5000 | 0.00025 | 262,144 | 123 |")

    def test_without_a_record_a_block_stays(self):
        self.assertEqual(self.filled("cuda-kda-flush"), DOCUMENT.format(name="cuda-kda-flush").splitlines())

    def test_a_name_that_no_table_has_is_an_error(self):
        with self.assertRaisesRegex(SystemExit, "no table 'cuda-kda-flash'"):
            self.filled("cuda-kda-flash")

    def test_the_documents_name_tables_that_exist(self):
        for name in write_tables.DOCUMENTS:
            self.assertRegex((write_tables.ROOT / name).read_text(encoding="utf-8"), write_tables.BLOCK)


if __name__ == "__main__":
    unittest.main()
