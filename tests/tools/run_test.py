"""tools/run: with a launcher of a few lines, and a training under the real one that Ctrl-C saves."""

import os
import pathlib
import signal
import subprocess
import sys
import time
import unittest

from programs import Programs

RUN = pathlib.Path(__file__).resolve().parents[2] / "tools" / "run"
TRAINER, MPIEXEC = os.environ["TUTTI_TRAINER"], os.environ["TUTTI_MPIEXEC"]


class Run(Programs):
    def start(self, launcher, *words):
        """Starts it in its own session, as a terminal's foreground job is its own process group."""
        self.log = self.root / "log"
        with open(self.log, "w", encoding="utf-8") as log:
            job = subprocess.Popen([RUN, *words], env=os.environ | {"TUTTI_MPIRUN": launcher}, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        self.addCleanup(self.end, job)
        return job

    def end(self, job):
        while job.poll() is None:
            self.press(job)
            time.sleep(0.3)

    def wait_for(self, words, job):
        while words not in self.log.read_text(encoding="utf-8"):
            self.assertIsNone(job.poll(), self.log.read_text(encoding="utf-8"))
            time.sleep(0.02)

    def press(self, job, number=signal.SIGINT):
        os.killpg(job.pid, number)

    def require_saved_by(self, script):
        """Checks that one Ctrl-C, once this launcher has printed ready, ends it like a saved training."""
        job = self.start(self.program("mpirun", script), "-np", "2")
        self.wait_for("ready", job)
        self.press(job)
        self.assertEqual(75, job.wait())

    def test_passes_words_and_status_on(self):
        job = self.start(self.program("mpirun", 'printf "<%s>" "$@"; exit 3'), "-np", "2", "./trainer", "a b")
        self.assertEqual(3, job.wait())
        self.assertEqual("<-np><2><./trainer><a b>", self.log.read_text(encoding="utf-8"))

    def test_turns_every_signal_into_the_one_that_saves(self):
        launcher = self.program("mpirun", "trap 'echo saved; exit 75' USR1; trap 'echo killed; exit 1' INT TERM HUP\n"
                                          "echo ready; while :; do sleep 0.05; done")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
            with self.subTest(number):
                job = self.start(launcher, "-np", "2")
                self.wait_for("ready", job)
                self.press(job, number)
                self.assertEqual(75, job.wait())
                self.assertIn("saved", self.log.read_text(encoding="utf-8"))
                self.assertNotIn("killed", self.log.read_text(encoding="utf-8"))

    def test_waits_with_the_signal_until_the_launcher_passes_it_on(self):
        self.require_saved_by("echo ready; sleep 1; trap 'exit 75' USR1\nwhile :; do sleep 0.05; done")

    def test_repeats_the_signal_for_ranks_that_start_late(self):
        self.require_saved_by("asked=0; trap '((++asked < 2)) || exit 75' USR1\n"
                              "echo ready; while :; do sleep 0.05; done")

    def test_ends_the_ranks_at_once_on_a_second_interrupt_only(self):
        job = self.start(self.program("mpirun", "trap 'echo asked' USR1; trap 'exit 9' INT\n"
                                                "echo ready; while :; do sleep 0.05; done"), "-np", "2")
        self.wait_for("ready", job)
        self.press(job, signal.SIGTERM)
        self.wait_for("asked", job)
        self.press(job, signal.SIGTERM)
        self.press(job)
        self.wait_for("asked\nasked", job)
        self.press(job)
        self.assertEqual(9, job.wait())
        self.assertIn("ended at once", self.log.read_text(encoding="utf-8"))

    def test_prints_its_usage_and_reports_a_missing_launcher(self):
        self.assertEqual(0, self.start("mpirun", "--help").wait())
        self.assertIn("usage: run MPIRUN-WORDS", self.log.read_text(encoding="utf-8"))
        self.assertEqual(64, self.start("no-such-mpirun", "-np", "2").wait())
        self.assertIn("TUTTI_MPIRUN", self.log.read_text(encoding="utf-8"))

    def test_saves_a_training_on_a_terminals_interrupt(self):
        out = self.root / "run"
        words = ["-n", "2", TRAINER, "--data", "synthetic:30000x1x28x28:10", "--epochs", "1000", "--out", out]
        job = self.start(MPIEXEC, *words)
        self.wait_for("epoch ", job)
        self.press(job)
        # MPICH's mpiexec loses the status of ranks that end within a moment of its signal.
        self.assertIn(job.wait(), (75, 0) if "mpich" in MPIEXEC else (75,))
        self.assertIn('"status":75', (out / "exit.json").read_text(encoding="utf-8"))
        self.assertTrue(list((out / "checkpoints").glob("step-*.json")))


if __name__ == "__main__":
    sys.exit(unittest.main())
