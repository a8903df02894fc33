"""trainer sweep as users start it: every combination is a row, equal to the training that it stands for."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import threading
import time
import unittest

TRAINER = os.environ["TUTTI_TRAINER"]
MPIEXEC = os.environ["TUTTI_MPIEXEC"]
SMALL = "--data synthetic:500x1x8x8:4 --validation-ratio 0.2 --model mlp --threads 1 ".split()
ENDLESS = [*SMALL, "--steps", "1000000000", "--epochs", "1000000"]


class Sweep(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.json = self.root / "s.json"
        (self.root / "tmp").mkdir()
        self.environment = os.environ | {"TMPDIR": str(self.root / "tmp")}

    def tearDown(self):
        self.assertEqual([], [str(path) for path in (self.root / "tmp").glob("tutti-sweep-*")], "files are left")

    def trainer(self, ranks, *words):
        launch = [MPIEXEC, "-n", str(ranks)] if ranks else []
        return subprocess.run([*launch, TRAINER, *words], env=self.environment, cwd=self.root, capture_output=True,
                              text=True, check=False, timeout=240)

    def sweep(self, ranks, *words, status=0):
        swept = self.trainer(ranks, "sweep", *words, "--json", self.json)
        self.assertEqual(status, swept.returncode, swept.stdout + swept.stderr)
        return swept.stdout, json.loads(self.json.read_text(encoding="utf-8"))

    def digest(self, ranks, *words):
        trained = self.trainer(ranks, *words)
        self.assertEqual(0, trained.returncode, trained.stderr)
        return re.search(r", weights ([0-9a-f]{16})", trained.stderr)[1]

    def refusal(self, *words, status=64):
        refused = self.trainer(0, "sweep", *words)
        self.assertEqual((status, ""), (refused.returncode, refused.stdout), refused.stderr)
        return refused.stderr


class Rows(Sweep):
    def test_use_the_ranks_of_an_allocation_in_its_interactive_shell(self):
        self.environment |= {"SLURM_JOB_ID": "7", "SLURM_JOB_NUM_NODES": "1", "SLURM_NTASKS": "2",
                             "SLURM_STEP_ID": "4294967290", "SLURM_STEP_NUM_TASKS": "1", "TUTTI_LAUNCHER": "mpirun"}
        _, swept = self.sweep(0, *SMALL, "--steps", "1", "--ranks", "1,2")
        self.assertEqual((2, 2), (swept["launched_ranks"], len(swept["rows"])))

    def test_have_the_weights_of_their_own_training(self):
        options = [*SMALL, "--epochs", "2"]
        printed, swept = self.sweep(3, *options, "--batch-size", "40", "--exchange", "ring,exact", "--ranks", "1,3")
        self.assertEqual(["exchange", "ranks"], swept["sweep"])
        self.assertEqual(3, swept["launched_ranks"])
        self.assertEqual(4, len(swept["rows"]))
        for row in swept["rows"][:1] + swept["rows"][-1:]:
            own = self.digest(row["ranks"], *options, "--batch-size", "40", "--exchange", row["options"]["exchange"])
            self.assertEqual(own, row["digest"])
            self.assertIn(own, printed)
            self.assertEqual((2, 400, "trained"), (len(row["epochs"]), row["train_images"], row["state"]))
            self.assertIsInstance(row["test_acc"], float)

    def test_are_started_without_a_launcher_too_and_compared_with_fewer_ranks(self):
        printed, swept = self.sweep(0, *SMALL, "--parts", "2", "--steps", "6", "--ranks", "1,2", "--momentum", "0,0.9")
        self.assertEqual(2, len({row["digest"] for row in swept["rows"]}), printed)
        self.assertEqual("ranks", swept["speed_up_by"])
        self.assertEqual([0, 0, 2, 2], [row["speed_up_over_row"] for row in swept["rows"]])
        self.assertIn("all with data synthetic:500x1x8x8:4, validation-ratio 0.2, model mlp, steps 6, parts 2", printed)

    def test_step_through_lists_together_and_scale_the_rate_with_the_batch(self):
        _, swept = self.sweep(0, *SMALL, "--steps", "2", "--seed", "1,2,3", "--batch-size", "20,40,60", "--together",
                              "seed,batch-size", "--lr", "0.1", "--scale-lr")
        self.assertEqual(["batch-size", "lr", "seed", "ranks"], swept["sweep"])
        self.assertEqual([{"batch-size": 20 * row, "lr": rate, "seed": row, "ranks": 1}
                          for row, rate in ((1, 0.1), (2, 0.2), (3, 0.3))], [row["options"] for row in swept["rows"]])

    def test_that_cannot_be_are_left_out_with_the_reason(self):
        printed, swept = self.sweep(0, *SMALL, "--steps", "2", "--optimizer", "sgd,adamw", "--momentum", "0,0.9")
        self.assertEqual(1, printed.count("left out: --momentum 0.9 is for sgd and lars"))
        self.assertIn("1 of 4 combinations left out, 0 failed", printed)
        self.assertEqual(["trained"] * 3 + ["left out"], [row["state"] for row in swept["rows"]])
        self.assertEqual("exact", self.sweep(0, *SMALL, "--steps", "2", "--parts", "2", "--shard-optimizer",
                                             "--exchange", "ring,exact")[1]["rows"][1]["exchange"])

    def test_outlive_a_combination_that_fails(self):
        printed, swept = self.sweep(2, *SMALL, "--steps", "8", "--batch-size", "20", "--lr", "1e36,0.05")
        self.assertEqual(["failed", "trained"], [row["state"] for row in swept["rows"]])
        self.assertIn("finite", swept["rows"][0]["reason"])
        self.assertEqual(1, swept["rows"][1]["speed_up_over_row"])
        self.assertIn("0 of 2 combinations left out, 1 failed", printed)

    def test_that_all_fail_end_with_the_first_ones_status(self):
        failed = self.trainer(0, "sweep", *SMALL, "--steps", "8", "--batch-size", "20", "--lr", "1e36,1e38")
        self.assertEqual(88, failed.returncode)
        self.assertIn("no combination could be trained; the first: the loss is no longer", failed.stderr)

    def test_take_what_is_for_all_from_a_file_and_keep_nothing(self):
        (self.root / "run.toml").write_text(
            'data = "synthetic:500x1x8x8:4"\nmodel = "mlp"\nthreads = 1\nsteps = 3\nlr = 0.02\n'
            f'checkpoint-every = "1"\nkeep-best = true\nout = "{self.root}/out"\n', encoding="utf-8")
        _, swept = self.sweep(0, "--config", "run.toml", "--seed", "0,1")
        own = self.digest(0, "--data", "synthetic:500x1x8x8:4", "--model", "mlp", "--threads", "1", "--lr", "0.02",
                          "--steps", "3", "--seed", "1")
        self.assertEqual(own, swept["rows"][1]["digest"])
        self.assertFalse((self.root / "out").exists())

    def test_come_through_a_pipe_once(self):
        os.mkfifo(self.json)
        read = []
        reader = threading.Thread(target=lambda: read.append(self.json.read_text(encoding="utf-8")))
        reader.start()
        swept = self.trainer(0, "sweep", *SMALL, "--steps", "2", "--lr", "0.1,0.2", "--json", self.json)
        reader.join(60)
        self.assertEqual(0, swept.returncode, swept.stderr)
        self.assertEqual(["trained"] * 2, [row["state"] for row in json.loads(read[0])["rows"]])


class Ends(Sweep):
    def begin(self, *words):
        """A sweep whose second combination is running, and its output so far."""
        started = subprocess.Popen([TRAINER, "sweep", *words, "--json", self.json], env=self.environment, cwd=self.root,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.addCleanup(started.stdout.close)
        self.addCleanup(started.kill)
        for line in started.stdout:
            if "failed:" in line:
                break
        deadline = time.monotonic() + 60
        while not list((self.root / "tmp").glob("tutti-sweep-*/run/metrics.jsonl")):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        return started

    def states(self):
        return [row["state"] for row in json.loads(self.json.read_text(encoding="utf-8"))["rows"]]

    def test_with_a_signal_keeps_the_rows_that_there_are(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            started = self.begin(*ENDLESS, "--lr", "1e36,0.05,0.1", "--batch-size", "20")
            started.send_signal(number)
            rest = started.stdout.read()
            self.assertEqual(-number, started.wait(60), rest)
            self.assertIn("0 of 3 combinations left out, 1 failed, 2 not trained", rest)
            self.assertEqual(["failed", "waiting", "waiting"], self.states())

    def test_of_a_rank_that_is_killed_costs_its_row_alone(self):
        started = self.begin(*SMALL, "--parts", "2", "--ranks", "2", "--lr", "1e36,0.05,0.1", "--batch-size", "20",
                             "--epochs", "1000", "--steps", "40000")
        children = [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and self.is_rank_of_this(pid)]
        self.assertTrue(children)
        os.kill(max(children), signal.SIGKILL)
        for line in started.stdout:
            if "failed:" in line:
                break
        started.send_signal(signal.SIGINT)
        started.stdout.read()
        started.wait(60)
        self.assertEqual(["failed", "failed", "waiting"], self.states())

    def is_rank_of_this(self, pid):
        try:
            call = pathlib.Path(f"/proc/{pid}/cmdline").read_bytes().decode().split("\0")
        except OSError:
            return False
        return call[0] == TRAINER and any(word.startswith(str(self.root / "tmp")) for word in call)


class Refusals(Sweep):
    def test_come_before_anything_is_trained_and_name_the_option(self):
        for words, expected in (("--exchange ring,rign", "--exchange rign: must be one of"),
                                ("--lr 0.1,fast", "--lr fast: must be a number"),
                                ("--lr 0.1,-1", "--lr -1"),
                                ("--batch-size 0,64 --scale-lr", "--batch-size 0"),
                                ("--lr 0.1,,0.2", "--lr '0.1,,0.2': a value is empty"),
                                ("--lr 0.1,0.2,0.1", "--lr has 0.1 twice"),
                                ("--ranks two", "--ranks two"),
                                ("--ranks 2,1", "--ranks 2,1: give ascending counts"),
                                ("--together ranks,lr --ranks 1,2 --lr 0.1,0.2,0.3", "--ranks has 2 values and --lr "),
                                ("--together lr,lr --lr 0.1,0.2", "'lr' has no list of its own"),
                                ("--scale-lr", "--scale-lr needs a list for --batch-size"),
                                ("--optimizer adamw --momentum 0.9", "--momentum 0.9 is for"),
                                ("--out runs", "--out"), ("--rehearse kill", "--rehearse"), ("--lr 0.1 0.2", "0.2"),
                                (f"--seed {','.join(map(str, range(101)))} --lr-decay "
                                 f"{','.join(map(str, range(101)))}", "more than 10000 combinations")):
            self.assertIn(expected, self.refusal(*words.split()), words)
        self.assertIn("nowhere", self.refusal("--data", "nowhere", "--lr", "0.1,0.2", status=74))
        self.assertIn("/proc/none", self.refusal(*SMALL, "--json", "/proc/none/s.json", status=73))

    def test_name_the_ranks_of_the_launch(self):
        refused = self.trainer(2, "sweep", *SMALL, "--ranks", "1,3")
        self.assertIn("--ranks 3: this launch has 2, so give counts of 1 to 2", refused.stderr)


if __name__ == "__main__":
    unittest.main()
