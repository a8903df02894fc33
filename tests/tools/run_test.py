"""tools/run: with a launcher of a few lines, and trainings under the real one that Ctrl-C saves, or that lose ranks."""

import contextlib
import json
import os
import pathlib
import random
import re
import signal
import statistics
import subprocess
import sys
import time
import unittest
import unittest.mock

from programs import Programs

RUN = pathlib.Path(__file__).resolve().parents[2] / "tools" / "run"
TRAINER, MPIEXEC = os.environ["TUTTI_TRAINER"], os.environ["TUTTI_MPIEXEC"]


class Started(Programs):
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


class Run(Started):
    def require_saved_by(self, script, *words):
        """Checks that one Ctrl-C, once this launcher has printed ready, ends it like a saved training."""
        job = self.start(self.program("mpirun", script), "-np", "2", *words)
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

    def test_hides_no_stop_behind_a_launcher_that_ended_before_its_ranks_began(self):
        self.require_saved_by("trap 'exit 0' USR1; echo ready; while :; do sleep 0.05; done", "./trainer", "--out", "a")

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

    def losing(self, *ends, out="run", more="", **environment):
        """The output of a training whose launches end so: with a status, at which step they began, in exit.json."""
        folder = self.root / out
        folder.mkdir(exist_ok=True)
        script = [f'n=$(cat {folder}/n 2>/dev/null || echo 0); echo $((n + 1)) >{folder}/n; echo "<$*>"']
        for number, (status, step, recorded) in enumerate(ends):
            record = f"echo '{{\"status\":{recorded}}}' >" if recorded else "rm -f "
            record += f"{folder}/exit.json"
            script.append(f"[ $n = {number} ] && {{ echo '{{\"event\":\"run\",\"step\":{step}}}' "
                          f">>{folder}/metrics.jsonl; {record}; exit {status}; }}")
        with unittest.mock.patch.dict(os.environ, environment):
            job = self.start(self.program("mpirun", "\n".join(script)), "-np", "2", "./trainer", "--out", folder,
                             *more.split())
        status = job.wait()
        return status, self.log.read_text(encoding="utf-8")

    def test_starts_a_training_again_that_has_lost_ranks(self):
        status, log = self.losing((137, 0, None), (1, 50, 86), (9, 60, None), (0, 70, None))
        self.assertEqual(0, status)
        words = f"-np 2 ./trainer --out {self.root}/run --keep-steps auto"
        self.assertEqual([f"<{words}>"] + [f"<{words} --resume>"] * 3, re.findall("<.*>", log))
        rehearsed = "--rehearse kill:rank=1 --resume"
        status, log = self.losing((137, 0, None), (0, 50, None), out="rehearsed", more=rehearsed)
        self.assertEqual([True, False], ["kill:rank=1" in words for words in re.findall("<.*>", log)])
        self.assertEqual([1, 1], [words.count("--resume") for words in re.findall("<.*>", log)])

    def test_names_the_status_behind_which_a_launcher_hides_it(self):
        _, log = self.losing((137, 0, None), (1, 50, 86), (9, 60, None), (0, 70, None))
        for status in (137, 86, 9 + 128):
            self.assertIn(f"lost ranks (status {status}): started again", log)

    def test_gives_up_on_a_training_that_gets_no_further(self):
        for number, (environment, starts) in enumerate((({}, 5), ({"TUTTI_RESTARTS": "1"}, 3),
                                                        ({"TUTTI_RESTARTS": "0"}, 1))):
            status, log = self.losing((137, 0, None), *[(137, 40, None)] * 9, out=f"run{number}", **environment)
            self.assertEqual((137, starts), (status, log.count("<")), log)
            self.assertEqual(starts > 1, "times without progress: it is not started again" in log)

    def test_starts_nothing_again_that_ended_for_a_reason(self):
        for number, end in enumerate(((73, 0, None), (0, 0, 75), (1, 0, 88), (75, 0, 75))):
            status, log = self.losing(end, out=f"run{number}")
            self.assertEqual((end[0], 1), (status, log.count("<")), log)
        status, log = self.losing((1, 0, '87,"right_at":0'), out="audited")
        self.assertEqual((1, 1), (status, log.count("<")), log)
        self.assertIn("an audit has found wrong results", log)
        (self.root / "old").mkdir()
        (self.root / "old/exit.json").write_text('{"status":86}', encoding="utf-8")
        job = self.start(self.program("mpirun", "exit 64"), "-np", "2", "./trainer", f"--out={self.root}/old")
        self.assertEqual(64, job.wait(), "of an earlier launch was exit.json")

    def test_refuses_a_number_of_restarts_that_is_none(self):
        self.assertEqual(64, self.losing((0, 0, None), TUTTI_RESTARTS="no")[0])

    def test_leaves_words_alone_that_choose_what_is_kept_or_save_nothing(self):
        for words in (["./trainer"], ["./trainer", "--out", "a", "--keep-steps=off"], ["a", "--out", "b", ":", "c"],
                      ["./trainer", "replay", "run", "--to", "50", "--out", "b"]):
            job = self.start(self.program("mpirun", 'echo "$*"; exit 137'), "-np", "2", *words)
            self.assertEqual(137, job.wait())
            self.assertNotIn("auto", self.log.read_text(encoding="utf-8"))

    def test_continues_a_training_whose_ranks_are_killed(self):
        words = ["-n", "3", TRAINER, "--data", "synthetic:6000x1x28x28:10", "--epochs", "12", "--parts", "6",
                 "--threads", "1", "--checkpoint-every", "end", "--out"]
        whole = self.start(MPIEXEC, *words, self.root / "whole")
        self.assertEqual(0, whole.wait())
        weights = re.findall(r"weights \w+", self.log.read_text(encoding="utf-8"))
        out = self.root / "broken"
        job = self.start(MPIEXEC, *words, out)
        for launch in range(1, 3):
            while not (metrics := out / "metrics.jsonl").exists() or \
                    metrics.read_text(encoding="utf-8").count('"event":"epoch"') < 3 * launch:
                self.assertIsNone(job.poll(), self.log.read_text(encoding="utf-8"))
                time.sleep(0.02)
            ranks = subprocess.run(["pgrep", "-f", f"^{TRAINER}.*{out}"], stdout=subprocess.PIPE, check=True, text=True)
            os.kill(int(ranks.stdout.split()[launch]), signal.SIGKILL)
        self.assertEqual(0, job.wait(), self.log.read_text(encoding="utf-8"))
        log = self.log.read_text(encoding="utf-8")
        self.assertEqual(weights, re.findall(r"weights \w+", log))
        self.assertEqual(2, log.count("started again"), log)
        begun = [json.loads(line) for line in (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
                 if line.startswith('{"event":"run"')]
        self.assertEqual(["new", "kept", "kept"], ["kept" if "tutti_kept" in run.get("resumed_from", "") else "new"
                                                   for run in begun])

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


@unittest.skipUnless("TUTTI_KILLED_RUNS" in os.environ, "slow")
class LostRanks(Started):
    @unittest.mock.patch.dict(os.environ, TUTTI_RESTARTS="5")  # all 4 kills may come before a first state
    def test_continues_a_training_whatever_ranks_are_killed_at_any_moment(self):
        """$TUTTI_KILL_SEED draws the same ranks and moments again, $TUTTI_KILL_OPTIONS chooses what is trained."""
        draw = random.Random(int(os.environ.get("TUTTI_KILL_SEED", "1")))
        words = ["--data", "synthetic:6000x1x28x28:10", "--batch-size", "64", "--parts", "8", "--threads", "1",
                 "--epochs", "1000", "--test-every", "0",
                 *os.environ.get("TUTTI_KILL_OPTIONS", "--steps 1500 --checkpoint-every 500").split(), "--out"]
        kept_before = set(pathlib.Path("/dev/shm").glob("tutti_kept-*"))
        begun = time.monotonic()
        self.assertEqual(0, self.start(MPIEXEC, "-n", "2", TRAINER, *words, self.root / "whole").wait())
        longest = time.monotonic() - begun
        weights = re.findall(r"weights \w+", self.log.read_text(encoding="utf-8"))
        kills, seconds = 0, []
        for number in range(int(os.environ["TUTTI_KILLED_RUNS"])):
            out = self.root / f"run{number}"
            job = self.start(MPIEXEC, "-n", draw.choice("2348"), TRAINER, *words, out)
            moments = []
            for _ in range(draw.randint(1, 4)):
                time.sleep(draw.uniform(0, longest / 2))
                found = subprocess.run(["pgrep", "-f", f"^{TRAINER}.*{out}"], stdout=subprocess.PIPE, check=False,
                                       text=True).stdout.split()
                for rank in draw.sample(found, draw.randint(1, max(1, len(found))) if found else 0):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(int(rank), signal.SIGKILL)
                if found:
                    moments.append(time.time())
            status, log = job.wait(), self.log.read_text(encoding="utf-8")
            self.assertEqual((0, weights), (status, re.findall(r"weights \w+", log)), log)
            records = (out / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
            launches = [json.loads(line)["unix_time"] for line in records if line.startswith('{"event":"run"')]
            kills += len(moments)
            seconds += [min(later) - moment for moment in moments if (later := [t for t in launches if t > moment])]
        self.assertEqual(kept_before, set(pathlib.Path("/dev/shm").glob("tutti_kept-*")))
        print(f"{kills} times ranks were killed; the next launch was ready after "
              f"{statistics.median(seconds):.2f} s (median), {max(seconds):.2f} s (most)")


if __name__ == "__main__":
    sys.exit(unittest.main())
