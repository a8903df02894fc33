"""trainer tensorboard and trainer mlperf-log: on records made here, and on a run of the trainer."""

import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unittest

COMPANIONS = pathlib.Path(__file__).resolve().parents[2] / "tools/companions"
TIMES = dict.fromkeys(("data", "communication", "evaluation", "checkpoint", "other"), 0)
START = {"event": "run", "seed": 7, "batch_size": 128, "train_samples": 20000, "test_samples": 0, "optimizer": "lars",
         "lr": 0.1, "warmup_epochs": 2.0, "momentum": 0.9, "weight_decay": 1e-4, "host": "n1", "startup_seconds": 2.0}
RECORDS = [
    START | {"step": 0, "unix_time": 1e9},
    {"event": "step", "step": 50, "train_loss": 0.5, "train_acc": 1, "lr": 0.1, "unix_time": 1e9 + 1},
    {"event": "epoch", "epoch": 1, "step": 100, "train_loss": None, "train_acc": 0.75, "test_loss": 0.5,
     "test_acc": 0.5, "seconds": 4, "test_seconds": 1.5, "images_per_second": 8, "lr": 0.1, "unix_time": 1e9 + 6},
    {"event": "time", "epoch": 1, "step": 100, "seconds": 6, **TIMES, "compute": 4, "waiting": 2, "worst": None,
     "unix_time": 1e9 + 7},
    {"event": "step", "step": 150, "train_loss": 0.5, "train_acc": 1, "lr": 0.1, "unix_time": 1e9 + 8},
    START | {"step": 100, "unix_time": 1e9 + 20},  # after a kill
    {"event": "epoch", "epoch": 2, "step": 200, "train_loss": 0.25, "train_acc": 0.75, "test_loss": None,
     "test_acc": None, "seconds": 4, "test_seconds": 0, "images_per_second": 8, "lr": 0.1, "unix_time": 1e9 + 25},
    {"event": "end", "step": 200, "status": "done", "unix_time": 1e9 + 26}]


def varint(data):
    value = shift = 0
    while True:
        byte, data = data[0], data[1:]
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, data


def fields(message):
    """(number, value) of a protocol buffer's fields."""
    found = []
    while message:
        key, message = varint(message)
        if key & 7 == 0:
            value, message = varint(message)
        else:
            size, form = {1: (8, "<d"), 5: (4, "<f")}.get(key & 7, (None, ""))
            if size is None:
                size, message = varint(message)
            value, message = message[:size], message[size:]
            value = struct.unpack(form, value)[0] if form else value
        found.append((key >> 3, value))
    return found


def events_in(path):
    data, events = path.read_bytes(), []
    while data:
        length = struct.unpack("<Q", data[:8])[0]
        events.append(dict(fields(data[12:12 + length])))
        data = data[16 + length:]
    return events


def figures(event):
    return {name.decode(): value for name, value in
            ((values[1], values[2]) for values in (dict(fields(one)) for _, one in fields(event[5])))}


class RunLogs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_folder = pathlib.Path(folder.name)

    def record(self, records, mode="w"):
        with (self.run_folder / "metrics.jsonl").open(mode, encoding="utf-8") as file:
            file.writelines(json.dumps(record) + "\n" for record in records)

    def call(self, command, *words):
        return subprocess.run([sys.executable, COMPANIONS / f"trainer-{command}", self.run_folder, *words],
                              capture_output=True, text=True, check=False, timeout=60)

    def event_files(self):
        return sorted((self.run_folder / "tensorboard").glob("events.out.tfevents.*"))

    def mlperf_lines(self):
        result = self.call("mlperf-log")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        return [json.loads(line.removeprefix(":::MLLOG ")) for line in result.stdout.splitlines()]

    def test_tensorboard_gets_a_file_for_each_start_with_the_figures_of_every_record(self):
        self.record(RECORDS)
        for _ in range(2):  # again: the same files
            result = self.call("tensorboard")
            self.assertEqual((0, ""), (result.returncode, result.stderr))
        first, second = map(events_in, self.event_files())
        self.assertEqual("events.out.tfevents.1000000000.n1.0", self.event_files()[0].name)
        self.assertEqual([b"brain.Event:2", 1], [first[0][3], first[1][2]])
        self.assertEqual({1: 1}, dict(fields(second[1][7])))
        self.assertEqual(101, second[1][2], "what the first file has from there on no longer counts")
        self.assertEqual((50, 1e9 + 1, {"loss/steps": 0.5, "accuracy/steps": 1.0}),
                         (first[2][2], first[2][1], figures(first[2])))
        epoch = figures(first[3])
        self.assertNotEqual(epoch.pop("loss/train"), epoch.get("loss/train"), "not a number, as it was")
        self.assertEqual({"accuracy/train": 0.75, "lr": struct.unpack("f", struct.pack("f", 0.1))[0],
                          "images_per_second": 8.0, "loss/test": 0.5, "accuracy/test": 0.5}, epoch)
        self.assertAlmostEqual(2 / 3, figures(first[4])["time/compute"], 6)
        self.assertEqual(4, len(figures(second[2])), "no figures of a test that there was not")

    def test_tensorboard_follows_a_run_until_its_end(self):
        self.record(RECORDS[:2])
        with subprocess.Popen([sys.executable, COMPANIONS / "trainer-tensorboard", self.run_folder, "--follow"],
                              stdout=subprocess.DEVNULL) as following:
            while not self.event_files():
                time.sleep(0.05)
            self.assertEqual(3, len(events_in(self.event_files()[0])))
            self.record(RECORDS[2:], "a")
            self.assertEqual(0, following.wait(timeout=30))
        whole = [path.read_bytes() for path in self.event_files()]
        self.call("tensorboard")
        self.assertEqual(whole, [path.read_bytes() for path in self.event_files()])

    def test_mlperf_log_has_a_run_from_its_start_to_its_end(self):
        self.record(RECORDS)
        lines = self.mlperf_lines()
        begin = ["init_start", "seed", "global_batch_size", "train_samples", "eval_samples", "opt_name",
                 "opt_base_learning_rate", "opt_learning_rate_warmup_epochs", "opt_momentum", "opt_weight_decay",
                 "init_stop", "run_start"]
        self.assertEqual([*begin, "epoch_start", "epoch_stop", "eval_start", "eval_stop", "eval_accuracy",
                          "tracked_stats", "epoch_start", *begin, "epoch_start", "epoch_stop", "tracked_stats",
                          "run_stop"], [line["key"] for line in lines])
        by_key = {line["key"]: line for line in reversed(lines)}
        for key, value in {"seed": 7, "opt_name": "lars", "eval_accuracy": 0.5,
                           "tracked_stats": {"throughput": 8, "train_loss": None}}.items():
            self.assertEqual(("POINT_IN_TIME", value), (by_key[key]["event_type"], by_key[key]["value"]))
        times = {"init_start": -2000, "run_start": 0, "epoch_stop": 4500, "eval_start": 4500, "eval_stop": 6000}
        self.assertEqual(times, {key: by_key[key]["time_ms"] - 10**12 for key in times})
        epochs = [(line["time_ms"] - 10**12, line["metadata"]["epoch_num"])
                  for line in lines if line["key"] == "epoch_start"]
        self.assertEqual([(0, 1), (7000, 2), (20000, 2)], epochs, "the second in two stretches")
        self.assertEqual({"status": "success", "file": "metrics.jsonl", "lineno": 8}, lines[-1]["metadata"])

    def test_damaged_lines_are_skipped_and_what_is_no_run_is_refused(self):
        self.assertEqual(65, self.call("tensorboard").returncode)
        self.record([])
        self.assertIn("holds no records", self.call("mlperf-log").stderr)
        self.record(RECORDS)
        with (self.run_folder / "metrics.jsonl").open("a", encoding="utf-8") as file:
            file.write('{"event":"epo\n{"half')
        result = self.call("tensorboard")
        self.assertEqual((0, 1), (result.returncode, result.stderr.count("skipped: 1")))
        self.assertEqual(73, self.call("tensorboard", "--to", "/proc/nowhere").returncode)
        self.record([RECORDS[0], {"event": "epoch", "step": 4}])
        for command in ("tensorboard", "mlperf-log"):
            self.assertIn("not the trainer's", self.call(command).stderr)
        self.record([{name: value for name, value in RECORDS[0].items() if name != "startup_seconds"}])
        self.assertEqual(65, self.call("mlperf-log").returncode, "of an earlier version")

    def test_a_run_of_the_trainer_has_all_that_they_need(self):
        words = ["--data", "synthetic:96x1x6x6:4", "--model", "mlp", "--batch-size", "16", "--epochs", "3", "--out",
                 self.run_folder, "--log-every", "4", "--quiet"]
        trainer = os.environ["TUTTI_TRAINER"]
        for more in (["--steps", "8"], ["--resume", "--steps", "0"]):
            subprocess.run([trainer, *words, *more], check=True, stdout=subprocess.DEVNULL, timeout=60)
        shown = subprocess.run([trainer, "tensorboard", self.run_folder], capture_output=True, text=True, check=False)
        self.assertEqual((0, ""), (shown.returncode, shown.stderr))
        self.assertEqual(9, events_in(self.event_files()[1])[1][2])
        log = subprocess.run([trainer, "mlperf-log", self.run_folder], capture_output=True, text=True, check=False)
        self.assertEqual((2, 4), (log.stdout.count('"run_stop"'), log.stdout.count('"epoch_start"')))
        self.assertEqual(log.stdout.count('"success"'), 2)
        times = [json.loads(line[9:])["time_ms"] for line in log.stdout.splitlines()]
        self.assertEqual(sorted(times), times)


if __name__ == "__main__":
    unittest.main()
