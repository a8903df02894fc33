"""Runs the user's shell scripts in a copy of tools/, with fake programs for apt-get, cmake, mpirun and ctest."""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import textwrap
import unittest
import unittest.mock

from programs import Programs

TOOLS = pathlib.Path(__file__).resolve().parents[2] / "tools"

EPOCHS = "epoch 1/2, loss 0.5, train acc 0.8, test acc 0.8500, time 1 sec, 10 images/s, lr 0.1\n" \
         "epoch 2/2, loss 0.1, train acc 0.9, test acc 0.9125, time 1 sec, 10 images/s, lr 0.1\n"


@functools.cache
def packages():
    return subprocess.run([TOOLS / "setup", "--list"], capture_output=True, text=True, check=True).stdout.split()


class Scripts(Programs):
    def setUp(self):
        super().setUp()
        self.root = self.root.resolve()
        self.programs = self.root / "programs"
        self.programs.mkdir()
        (self.root / "tools").mkdir()
        for script in TOOLS.iterdir():
            if script.is_file():
                shutil.copy(script, self.root / "tools")
        shutil.copytree(TOOLS / "cluster", self.root / "tools/cluster")
        self.program("apt-get", "exit 1")
        self.install_packages(packages())

    def program(self, name, script):
        return super().program(f"programs/{name}", script)

    def install_packages(self, packages):
        self.program("dpkg-query", f"printf '%s ii \\n' {' '.join(packages)}")

    def run_script(self, name, *arguments, folder=None):
        environment = os.environ | {"PATH": f"{self.programs}:{os.environ['PATH']}"}
        return subprocess.run([self.root / "tools" / name, *arguments], cwd=folder or self.root, env=environment,
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=60)

    def run_stage(self, *command):
        """A script of one stage, "try it", in the copy."""
        path = self.root / "tools" / "one"
        path.write_text('#!/bin/bash\nset -euo pipefail\nsource "$(dirname "$0")/stage.bash"\nopen_logs\n'
                        'stage "try it" "the remedy" "$@"\necho next line\n', encoding="utf-8")
        path.chmod(0o755)
        return self.run_script("one", *command)


class Stage(Scripts):
    def test_prints_its_seconds_and_saves_its_output(self):
        result = self.run_stage("echo", "some output")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertRegex(result.stdout, r"^try it: \d+ s\nnext line\n$")
        self.assertEqual("some output\n", (self.root / "build/logs/one-try-it.log").read_text(encoding="utf-8"))

    def test_shows_the_progress_of_a_build_without_a_terminal_too(self):
        # The stage sleeps between two looks at the log: whoever waits for two sleeps to begin has been seen.
        self.program("sleep", "echo >>looks; exec /bin/sleep 0.02")
        self.program("build", """touch looks
seen() { local until=$(($(wc -l <looks) + 2)); until (($(wc -l <looks) >= until)); do /bin/sleep 0.01; done; }
for i in 1 5 10; do echo "[$i/10] Building $i"; seen; done""")
        self.assertRegex(self.run_stage("build").stdout, r"^try it: 10 % 50 % \d+ s\nnext line\n$")

    def test_that_fails_ends_the_script_and_shows_log_and_remedy(self):
        result = self.run_stage("bash", "-c", "echo the reason; exit 7")
        self.assertEqual(7, result.returncode)
        self.assertNotIn("next line", result.stdout)
        for words in ("the reason", '"try it" failed with status 7', "build/logs/one-try-it.log", "the remedy"):
            self.assertIn(words, result.stderr)


class Setup(Scripts):

    def test_of_a_function_ends_at_its_first_failure(self):
        self.assertEqual(1, self.run_stage("eval", "f() { false; echo went on; }; f").returncode)

    def test_needs_nothing_but_the_list_of_packages_when_all_are_there(self):
        self.program("apt-get", "echo called >&2; exit 1")
        result = self.run_script("setup")
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertRegex(result.stdout, r"^setup: all \d+ packages are installed\n$")
        self.assertEqual("", self.run_script("setup", "--quiet").stdout)

    def plant_missing_zlib(self, apt_get):
        self.install_packages(name for name in packages() if name != "zlib1g-dev")
        self.program("apt-get", f'echo "$*" >>{self.root}/calls\n{apt_get}')
        self.program("sudo", 'while [[ $1 == -n || $1 == *=* ]]; do shift; done; exec "$@"')

    def test_installs_what_is_missing_and_only_that(self):
        self.plant_missing_zlib("exit 0")
        result = self.run_script("setup")
        self.assertEqual(0, result.returncode, result.stderr)
        calls = (self.root / "calls").read_text(encoding="utf-8").splitlines()
        self.assertTrue(all(call.endswith("install --no-install-recommends zlib1g-dev") for call in calls), calls)

    def test_updates_old_package_lists_once_and_then_reports_the_failure(self):
        self.plant_missing_zlib("[[ $* == *--simulate* ]]")
        result = self.run_script("setup")
        self.assertNotEqual(0, result.returncode)
        calls = (self.root / "calls").read_text(encoding="utf-8").splitlines()
        self.assertEqual(["simulate", "install", "update", "install"],
                         [re.search("simulate|update|install", call)[0] for call in calls])
        self.assertIn("apt-get install --no-install-recommends zlib1g-dev", result.stderr)

    def test_refuses_unknown_options(self):
        result = self.run_script("setup", "--all")
        self.assertEqual(1, result.returncode)
        self.assertIn("'--all'", result.stderr)


class TryOn(Scripts):
    def test_does_not_change_folders_that_it_has_not_made(self):
        self.program("debootstrap", "exit 1")
        own = self.root / "own"
        own.mkdir()
        result = self.run_script("try-on", "--in", str(own), "--remove", "trixie")
        self.assertEqual(1, result.returncode)
        self.assertRegex(result.stderr, "not of this program's making" if os.geteuid() == 0 else "only root")
        self.assertTrue(own.is_dir())


class Demo(Scripts):
    def setUp(self):
        super().setUp()
        self.program("cmake", "mkdir -p build/demo && cp programs/trainer build/demo/")
        (self.root / "README.md").write_text("All end with `0a`.\n", encoding="utf-8")
        self.training = f"printf '{EPOCHS}'; echo done after 2 steps, weights 0a"
        self.goes_on = "echo done after 2 steps, weights 0a"

    def demo(self, folder=None):
        """mpirun starts the trainer once, which waits to be killed if it saves checkpoints during the run."""
        self.program("mpirun", '[[ $* != *true ]] || exit 0\nshift 2\n"$@"')
        self.program("trainer", f"""case $* in
          diff*) echo equal ;;
          *--resume*) {self.goes_on} ;;
          *--checkpoint-every*) printf '{EPOCHS}'; sleep 60 ;;
          *) {self.training} ;;
        esac""")
        return self.run_script("demo", folder=folder)

    def test_ends_with_equal_bits_and_the_last_test_accuracy_from_any_folder(self):
        elsewhere = self.root / "elsewhere"
        elsewhere.mkdir()
        result = self.demo(elsewhere)
        self.assertEqual((0, ""), (result.returncode, result.stderr))
        self.assertEqual(3, result.stdout.count(textwrap.indent(EPOCHS, "  ")))
        self.assertEqual(2, result.stdout.count(": weights 0a, the same bits\n"))
        self.assertRegex(result.stdout, r"  \$ ./trainer diff \S+/4-ranks \S+/killed\n  equal\n")
        self.assertIn("  weights 0a, as README.md names them", result.stdout)
        self.assertIn("test accuracy 91.25 %", result.stdout)
        self.assertEqual("build/demo/trainer", os.readlink(self.root / "trainer"))

    def test_reports_a_failed_training(self):
        self.training = "echo no memory >&2; exit 70"
        result = self.demo()
        self.assertEqual(1, result.returncode)
        self.assertIn("no memory", result.stderr)
        self.assertIn("status 70", result.stderr)
        self.assertIn("build/logs/demo-4-ranks.log", result.stderr)

    def test_fails_without_an_accuracy(self):
        self.training = "echo epoch 1/1, loss 0.5, train acc 0.8, test acc -, time 1 sec"
        result = self.demo()
        self.assertEqual(1, result.returncode)
        self.assertIn("no test accuracy", result.stderr)

    def test_fails_with_other_bits_after_the_kill(self):
        self.goes_on = "echo done after 2 steps, weights 0b"
        result = self.demo()
        self.assertEqual(1, result.returncode)
        self.assertRegex(result.stderr, "weights 0b, not 0a; .*demo-resumed.log")

    def test_fails_with_other_bits_than_those_for_every_processor(self):
        self.training = f"printf '{EPOCHS}'; echo done after 2 steps, weights 0c"
        result = self.demo()
        self.assertEqual(1, result.returncode)
        self.assertRegex(result.stderr, "weights 0c, not with those that README.md names.*trainer screen")

    def test_reports_a_failed_build(self):
        self.program("cmake", "[[ $* != *--build* ]] || { echo 'error: no such type'; exit 2; }")
        result = self.run_script("demo")
        self.assertEqual(2, result.returncode)
        self.assertIn("error: no such type", result.stderr)
        self.assertIn("build/logs/demo-build.log", result.stderr)


class Tests(Scripts):
    def test_skip_what_this_machine_may_lack_and_pass_options_and_status_on(self):
        self.program("cmake", "exit 0")
        self.program("ctest", 'echo "ctest: $*"; exit 8')
        result = self.run_script("test", "-R", "comm")
        self.assertEqual(8, result.returncode)
        self.assertRegex(result.stdout, r"ctest: .*--label-exclude \^\(gpu\|slow\|slurm\|data\)\$ -R comm\n$")

    def test_use_all_processors_whatever_number_of_threads_openmp_is_given(self):
        self.program("cmake", 'echo "$*" >>calls')
        self.program("ctest", 'echo "$*" >>calls')
        with unittest.mock.patch.dict(os.environ, OMP_NUM_THREADS="1", OMP_THREAD_LIMIT="1"):
            self.assertEqual(0, self.run_script("test").returncode)
        calls = (self.root / "calls").read_text(encoding="utf-8")
        processors = len(os.sched_getaffinity(0))
        self.assertIn(f"--build --preset release --parallel {processors}\n", calls)
        self.assertIn(f"--parallel {processors + 2} ", calls)

    def test_of_every_script_are_printed(self):
        for script in ("setup", "demo", "test", "dev", "fuzz", "try-on", "cluster-test", "cluster/slurm",
                       "cluster/hosts"):
            with self.subTest(script):
                result = self.run_script(script, "--help")
                self.assertEqual((0, ""), (result.returncode, result.stderr))
                self.assertTrue(result.stdout.startswith(f"usage: tools/{script}"), result.stdout)


class JobScripts(unittest.TestCase):
    def test_are_valid_and_have_two_lines_to_edit(self):
        for job in sorted((TOOLS.parent / "jobs").iterdir()):
            text = job.read_text(encoding="utf-8") if job.is_file() else ""
            if job.suffix != ".bash" and not text.startswith("#!/bin/bash"):
                continue
            with self.subTest(job.name):
                checks = [["bash", "-n"]] + ([["shellcheck", "-x"]] if shutil.which("shellcheck") else [])
                for check in checks:
                    result = subprocess.run([*check, job], cwd=TOOLS.parent, capture_output=True, text=True,
                                            check=False)
                    self.assertEqual(("", "", 0), (result.stdout, result.stderr, result.returncode))
                if job.name not in ("slurm.bash", "launch.bash", "chain"):
                    self.assertEqual(2, text.count("\n# EDIT: "))


class Jobs(Scripts):
    """The scripts of jobs/, in a copy, with fake programs of Slurm and PBS, which record their calls."""

    def setUp(self):
        super().setUp()
        shutil.copytree(TOOLS.parent / "jobs", self.root / "jobs")
        (self.root / "trainer").symlink_to("/bin/true")
        # Looking for a late launcher takes less than a second, and nobody waits for Slurm to end the job.
        self.program("sleep", "case $1 in 1) exec /bin/sleep 0.05 ;; 600) ;; *) exec /bin/sleep $1 ;; esac")

    def run_job(self, script, *words, **environment):
        """The job's status, and the calls it made."""
        calls = self.root / "calls"
        calls.write_text("", encoding="utf-8")
        environment = os.environ | {"PATH": f"{self.programs}:{os.environ['PATH']}"} | environment
        result = subprocess.run(["bash", f"jobs/{script}", *words], cwd=self.root, env=environment, capture_output=True,
                                text=True, check=False, timeout=60)
        self.errors = result.stderr
        return result.returncode, calls.read_text(encoding="utf-8")


class SlurmJob(Jobs):
    def train(self, srun, job="", **environment):
        """jobs/train.sbatch, where a rank does `srun` and Slurm shows the job as `job`."""
        self.program("srun", srun)
        self.program("scontrol", f'[[ $1 == show ]] || exec echo "$*" >>calls; echo " {job} Restarts=0 Requeue=1 "')
        (self.root / "runs/tutti-7").mkdir(parents=True, exist_ok=True)
        (self.root / "runs/tutti-7/exit.json").write_text('{"status":75,"rank":0}', encoding="utf-8")  # the last one's
        return self.run_job("train.sbatch", **{"SLURM_JOB_NAME": "tutti", "SLURM_JOB_ID": "7", "TUTTI_LAUNCHER": "srun",
                                               "SLURM_JOB_NODELIST": "n1", "TUTTI_RESTARTS": "0"} | environment)

    def test_passes_warnings_on_and_goes_back_into_the_queue(self):
        self.assertEqual((75, "requeue 7\n"),
                         self.train("trap 'exit 75' USR1; while :; do kill -USR1 $PPID; /bin/sleep 0.05; done"))

    def test_goes_back_into_the_queue_when_the_warning_came_too_early_for_the_ranks(self):
        self.assertEqual((75, "requeue 7\n"), self.train("kill -USR1 $PPID; kill -USR1 $$; /bin/sleep 9"))
        self.assertEqual((75, "requeue 7\n"), self.train("kill -USR1 $PPID; /bin/sleep 0.1; exit 0"))
        self.assertEqual((143, "requeue 7\n"), self.train("kill -TERM $$", TUTTI_RESTARTS="3"), "to the ranks alone")

    def test_repeats_a_warning_that_the_launcher_has_lost(self):
        self.assertEqual((75, "requeue 7\n"),
                         self.train("trap : USR1; kill -USR1 $PPID; /bin/sleep 0.04; trap 'exit 75' USR1; "
                                    "for i in {1..100}; do /bin/sleep 0.05; done"))

    def test_goes_back_into_the_queue_when_the_warning_came_before_the_ranks(self):
        (self.root / "trainer").unlink()
        self.program("../trainer", "kill -USR1 $PPID")  # asked for its version
        self.assertEqual((75, "requeue 7\n"), self.train("echo began >>calls"))

    def test_ends_when_the_training_could_not_save_after_the_warning(self):
        self.assertEqual((73, ""), self.train("trap : USR1; kill -USR1 $PPID; /bin/sleep 0.1; "
                                              "echo '{\"status\":73,\"rank\":0}' >runs/tutti-7/exit.json; exit 1"))

    def test_finds_the_status_that_a_launcher_has_hidden(self):
        self.assertEqual((75, "requeue 7\n"),
                         self.train("""echo '{"status":75,"rank":0}' >runs/tutti-7/exit.json; exit 143"""))
        self.assertEqual((65, ""), self.train("""echo '{"status":65,"rank":0}' >runs/tutti-7/exit.json; exit 143"""))

    def test_finds_it_behind_a_launcher_that_ended_with_success(self):
        self.assertEqual((75, "requeue 7\n"),
                         self.train("""echo '{"status":75,"rank":0}' >runs/tutti-7/exit.json; exit 0"""))

    def test_is_requeued_when_a_signal_killed_a_rank_of_mpich(self):
        self.assertEqual([(137, "requeue 7\n"), (137, "")], [self.train("exit 9") for _ in range(2)])
        self.assertIn("signal KILL killed a rank", self.errors)

    # A rank of a training whose launch number N begins at step 10 N, and that is lost in the first launches.
    losing = ("n=$(wc -l <calls 2>/dev/null || echo 0); echo $* >>calls; "
              "echo '{\"event\":\"run\",\"step\":'$((10 * n))'}' >>runs/tutti-7/metrics.jsonl; "
              "((n >= %d)) || exit 137")

    def test_is_started_again_in_its_allocation_when_it_has_lost_ranks(self):
        status, calls = self.train(self.losing % 4, TUTTI_RESTARTS="1")
        self.assertEqual((0, 5), (status, calls.count("--keep-steps auto --config")))
        self.assertEqual(4, self.errors.count("lost ranks (status 137): started again"))

    def test_is_requeued_when_starting_it_again_is_of_no_use(self):
        status, calls = self.train(self.losing.replace("10 *", "0 *") % 99, TUTTI_RESTARTS="2")
        self.assertEqual((137, 3, 1), (status, calls.count("--keep-steps"), calls.count("requeue 7")))

    def test_goes_on_with_the_nodes_that_are_left(self):
        shown = "n1 alloc\\nn2 down*\\nn3 alloc*\\nn4 mix"
        self.program("sinfo", f'printf "{shown}\\n"')
        nodes = {"SLURM_JOB_NUM_NODES": "4", "SLURM_NTASKS": "8", "SLURM_NTASKS_PER_NODE": "2", "TUTTI_RESTARTS": "3"}
        lock = self.root / "runs/tutti-7/lock"
        lock.parent.mkdir(parents=True)
        lock.write_text("host n2.cluster, process 17, Slurm job 7 restart 0\n", encoding="utf-8")
        status, calls = self.train(self.losing % 1, **nodes)
        first, second = calls.splitlines()
        self.assertFalse(lock.exists())
        self.assertEqual((0, True, False), (status, "--ntasks=8" in first, "--nodelist" in first))
        self.assertIn("--ntasks=4 --cpus-per-task=1 --kill-on-bad-exit=1 --nodes=2 --nodelist=n1,n4 ", second)
        self.assertIn("goes on with n1 n4", self.errors)
        wrong = """echo '{"status":87,"exclude":["n1.cluster"]}' >runs/tutti-7/exit.json; """
        status, calls = self.train((self.losing % 4).replace("|| exit", f"|| {{ {wrong} exit") + "; }", **nodes)
        self.assertIn("--nodelist=n4 ", calls.splitlines()[-1])
        found_once = (self.losing % 2).replace("|| exit", f"|| {{ ((n)) || {wrong} exit") + "; }; exit 75"
        lost_later, calls = self.train(found_once, **nodes)
        self.assertEqual((75, 2), (lost_later, calls.count("--nodelist=n4 ")))
        self.assertIn("update JobId=7 ExcNodeList=n1", calls)

    def test_kills_a_launcher_that_outlives_its_ranks(self):
        record = '{"status":86,"rank":1,"reason":"r","phase":"backward","step":9}'
        self.program("mpirun", "trap '' TERM; /bin/sleep 600 & echo $! >child\n"
                               f"{self.saves} echo '{record}' >runs/tutti-7/exit.json; wait")
        ended = self.train("exit 0", TUTTI_LAUNCHER="mpirun", SLURM_NTASKS="2", TUTTI_LAUNCHER_SECONDS="1")
        self.assertEqual((86, "requeue 7\n"), ended)
        self.assertIn("the launcher is still there 1 s after the ranks have ended: it is killed; end what is left of "
                      "it (orted) on n1", self.errors)
        child = (self.root / "child").read_text(encoding="utf-8").strip()
        self.assertFalse(pathlib.Path(f"/proc/{child}/exe").exists(), "a child of the launcher lives on")

    def test_of_an_array_has_its_own_name_and_folder(self):
        self.assertEqual((75, "requeue 5_2\n"),
                         self.train("exit 75", SLURM_ARRAY_JOB_ID="5", SLURM_ARRAY_TASK_ID="2", TUTTI_OUT="runs/a"))
        self.assertTrue((self.root / "runs/a_2").is_dir())

    def test_is_not_requeued_after_a_cancellation_but_after_the_time_limit(self):
        self.assertEqual((75, ""), self.train("exit 75", "JobState=COMPLETING Reason=None"))
        self.assertEqual((75, "requeue 7\n"), self.train("exit 75", "JobState=COMPLETING Reason=TimeLimit"))

    def test_is_not_requeued_twice_or_against_its_settings(self):
        self.assertEqual((75, ""), self.train("exit 75", "Restarts=1"))
        self.assertEqual((75, ""), self.train("exit 75", "Requeue=0"))

    def test_ends_as_the_training_does(self):
        self.assertEqual((65, ""), self.train("exit 65"))
        begin = "trap : USR1; echo host n1 >runs/tutti-7/lock; "
        self.assertEqual((0, ""), self.train(f"{begin}kill -USR1 $PPID; /bin/sleep 0.1; kill -TERM $PPID; "
                                             "/bin/sleep 0.1; exit 0"))

    saves = "mkdir -p runs/tutti-7/checkpoints; touch runs/tutti-7/checkpoints/step-$(date +%s%N).json; "

    def test_is_requeued_after_three_crashes_at_most(self):
        self.assertEqual([(137, "requeue 7\n")] * 3 + [(137, "")],
                         [self.train(self.saves + "exit 137") for _ in range(4)])

    def test_is_requeued_when_a_rank_has_exited(self):
        self.assertEqual((86, "requeue 7\n"), self.train(self.saves + "exit 86"))

    def test_is_requeued_once_when_a_rank_has_exited_at_the_start(self):
        self.assertEqual([(86, "requeue 7\n"), (86, "")], [self.train("exit 86") for _ in range(2)])
        (self.root / "runs/tutti-7/metrics.jsonl").write_text('{"event":"run","command_line":["a"],"step":40}\n'
                                                              '{"event":"step","step":99}\n', encoding="utf-8")
        for step, calls in ((0, ""), (41, ""), (42, "requeue 7\n")):
            with self.subTest(step):
                record = f'{{"status":86,"rank":1,"reason":"no memory","phase":"backward","step":{step}}}'
                self.assertEqual((86, calls), self.train(f"echo '{record}' >runs/tutti-7/exit.json; exit 143"))

    def test_is_requeued_three_times_when_the_replicas_differed(self):
        self.assertEqual([(87, "requeue 7\n")] * 3 + [(87, "")], [self.train("exit 87") for _ in range(4)])

    def found_wrong(self, right_at):
        """An audit has found wrong results on hosts n3 and n5."""
        record = f'{{"status":87,"rank":2,"reason":"r","exclude":["n3.cluster","n5"],"right_at":{right_at}}}'
        return f"echo '{record}' >runs/tutti-7/exit.json; exit 143"

    def test_excludes_the_hosts_that_computed_wrong_results(self):
        for job, hosts in (("ExcNodeList=(null)\n", "n3,n5"), ("ExcNodeList=n[1-2]\n", "n3,n5,n[1-2]")):
            with self.subTest(job):
                self.assertEqual((87, f"requeue 7\nupdate JobId=7 ExcNodeList={hosts}\n"),
                                 self.train(self.found_wrong(0), job))
        self.assertEqual((87, "requeue 7\n"), self.train("exit 87"))

    def test_in_a_chain_excludes_them_from_the_jobs_after_it(self):
        self.program("squeue", "echo '8 afternotok:7(unfulfilled)'; echo '10 afternotok:77(unfulfilled)'")
        self.assertEqual((87, "update JobId=8 ExcNodeList=n3,n5\n"),
                         self.train(self.found_wrong(0), "Requeue=0", TUTTI_CHAIN="1"))

    def test_sets_checkpoints_of_the_launch_aside_if_no_step_of_it_was_confirmed(self):
        folder = self.root / "runs/tutti-7/checkpoints"
        folder.mkdir(parents=True)
        for begun, left in ((9, ["step-00000008.json", "step-00000009.json"]), (0, [])):
            for step in (8, 9, 10):
                (folder / f"step-{step:08}.json").touch()
            record = f'{{"event":"run","step":{begun}}}\n'
            (self.root / "runs/tutti-7/metrics.jsonl").write_text(record, encoding="utf-8")
            with self.subTest(begun=begun):
                self.assertEqual(87, self.train(self.found_wrong(0))[0])
                self.assertEqual(left, sorted(file.name for file in folder.glob("step-*")))

    def test_sets_checkpoints_aside_that_may_be_wrong(self):
        folder = self.root / "runs/tutti-7/checkpoints"
        folder.mkdir(parents=True)
        files = [f"step-0000{step}{ending}" for step in ("0008", "0009", "0010") for ending in (".json", ".h5")]
        for right_at, left, crashes in ((7, [], 0), (9, files[:4], 1), (8, files[:2], 2), (8, files[:2], 3)):
            for file in files:
                (folder / file).touch()
            shutil.rmtree(folder / "suspect", ignore_errors=True)
            (self.root / "runs/tutti-7/crashes").write_text("crash\n" * crashes, encoding="utf-8")
            with self.subTest(right_at=right_at, crashes=crashes):
                status, calls = self.train(self.found_wrong(right_at))
                self.assertEqual((87, crashes < 3), (status, "requeue 7\n" in calls))
                self.assertEqual(sorted(left), sorted(file.name for file in folder.glob("step-*")))
                moved = sorted(file.name for file in folder.glob("suspect/*"))
                self.assertEqual(sorted(set(files) - set(left)), moved)

    def test_takes_mpirun_where_srun_cannot_connect_the_ranks(self):
        self.program("mpirun", 'kill -TERM $$; echo "mpirun $1 $2" >>calls')  # as scancel does, with all processes
        unset = {"TUTTI_LAUNCHER": "", "SLURM_NTASKS": "4"}
        self.assertEqual((0, "mpirun -np 4\n"), self.train("echo none pmi2", **unset))
        self.assertEqual((0, "srun --mpi=pmix\n"),
                         self.train("[[ $1 != --mpi=list ]] || exec echo none pmix; echo srun $1 >>calls", **unset))

    def test_in_a_chain_each_starts_only_if_all_before_it_failed(self):
        self.program("sbatch", 'echo "$TUTTI_CHAIN $TUTTI_OUT: $*" >>calls; wc -l <calls')
        status, calls = self.run_job("chain", "3", "--time=5", "jobs/train.sbatch", "--lr", "1", TUTTI_OUT="runs/a")
        self.assertEqual(0, status)
        usual = "1 runs/a: --parsable --no-requeue --kill-on-invalid-dep=yes "
        self.assertEqual([usual + after + "--time=5 jobs/train.sbatch --lr 1" for after in
                          ("", "--dependency=afternotok:1 ", "--dependency=afternotok:1:2 ")], calls.splitlines())
        self.assertEqual(64, self.run_job("chain", "jobs/train.sbatch")[0])

    def test_in_a_chain_ends_those_after_it_when_they_would_fail_in_the_same_way(self):
        self.program("squeue", "printf '%s\n' '8 afternotok:7(unfulfilled)' '9 afternotok:7(unfulfilled),afternotok:8' "
                               "'10 afternotok:77(unfulfilled)' '11 (null)'")
        self.program("scancel", 'echo "scancel $*" >>calls')
        for status in (64, 65, 66):
            self.assertEqual((status, "scancel 8 9\n"), self.train(f"exit {status}", TUTTI_CHAIN="1"))
        for status in (0, 75, 86):
            self.assertEqual((status, ""), self.train(f"exit {status}", "Requeue=0", TUTTI_CHAIN="1"))
        self.assertEqual((86, "scancel 8 9\n"), self.train("exit 86", TUTTI_CHAIN="1"))
        self.assertEqual((65, ""), self.train("exit 65"))
        (self.root / "trainer").unlink()
        self.assertEqual((66, "scancel 8 9\n"), self.train("exit 0", TUTTI_CHAIN="1"))

    def test_runs_from_where_it_is_installed_without_a_copy_of_its_folder(self):
        prefix = self.root / "prefix"
        shutil.move(self.root / "jobs", prefix / "share/doc/tutti/examples/jobs")
        (prefix / "bin").mkdir()
        (self.root / "trainer").unlink()
        self.program("../prefix/bin/tutti", "exit 0")
        shutil.copy(prefix / "share/doc/tutti/examples/jobs/train.sbatch", self.programs / "slurm_script")
        (self.root / "jobs").symlink_to(self.programs)  # of another project
        self.program("srun", 'echo "srun $*" >>calls')
        slurm = {"SLURM_JOB_NAME": "tutti", "SLURM_JOB_ID": "7", "TUTTI_LAUNCHER": "srun", "SLURM_NTASKS": "4"}
        status, calls = self.run_job("slurm_script", **slurm, PATH=f"{prefix}/bin:{self.programs}:{os.environ['PATH']}")
        self.assertEqual(0, status)
        examples = f"{prefix}/share/doc/tutti/examples"
        self.assertRegex(calls, f"{prefix}/bin/tutti .*--config {examples}/jobs/glyphs-lenet.toml")
        self.assertEqual((1, ""), self.run_job("slurm_script", **slurm))


class PbsJob(Jobs):
    def train(self, mpirun, qstat="Resource_List.walltime = 01:30:00", qsub='echo "qsub $*" >>calls; echo 8.server',
              restarts="0", script="train.pbs"):
        self.program("mpirun", f'echo "mpirun ${{@: -1}}" >>calls\n{mpirun}')
        self.program("qsub", qsub)
        self.program("qstat", f"echo '    {qstat}'")
        (self.root / "nodes").write_text("n1\nn2\n", encoding="utf-8")
        status, calls = self.run_job(script, PBS_O_WORKDIR=str(self.root), PBS_JOBNAME="tutti", PBS_JOBID="7.server",
                                     PBS_NODEFILE=str(self.root / "nodes"), TUTTI_RESTARTS=restarts)
        return status, re.sub("mpirun 52[78][0-9]", "mpirun 5280", calls)  # less the seconds since the job's start

    def test_is_started_again_without_the_nodes_that_do_not_answer(self):
        self.program("pbs_tmrsh", "[[ $1 == n2 ]]")
        status, calls = self.train(SlurmJob.losing % 2, restarts="3")
        self.assertEqual((0, "n2\n"), (status, (self.root / "runs/tutti-7/hosts").read_text(encoding="utf-8")))
        self.assertIn("--hostfile runs/tutti-7/hosts -np 1 ./trainer --keep-steps auto ", calls)
        self.assertIn("n1 is left out: it does not answer", self.errors)
        self.assertNotIn("qsub", calls)

    def test_submits_itself_again_when_out_of_time(self):
        self.assertEqual((75, self.again), self.train("exit 75"))

    again = "mpirun 5280\nqsub -v TUTTI_OUT=runs/tutti-7 runs/tutti-7/job.pbs\n"

    def test_submits_itself_again_three_times_when_the_replicas_differed(self):
        self.assertEqual([(87, self.again)] * 3 + [(87, "mpirun 5280\n")], [self.train("exit 87") for _ in range(4)])

    def test_submits_itself_again_after_crashes_that_may_not_come_back(self):
        record = """echo '{"status":86,"rank":1,"step":9}' >runs/tutti-7/exit.json; """
        for mpirun, status in ((record + "exit 0", 86), (SlurmJob.saves + "exit 137", 137),
                               (SlurmJob.saves + "exit 9", 137)):
            self.assertEqual((status, self.again), self.train(mpirun))
        self.assertEqual((137, "mpirun 5280\n"), self.train("exit 137"), "the fourth")
        (self.root / "runs/tutti-7/crashes").unlink()
        self.assertEqual([(86, self.again), (86, "mpirun 5280\n")], [self.train("exit 86") for _ in range(2)])
        self.assertIn("not started again; qsub -v TUTTI_OUT=runs/tutti-7 runs/tutti-7/job.pbs resumes it", self.errors)

    def test_says_how_to_resume_when_it_cannot_submit_itself(self):
        for qsub in ("exit 1", "exit 0"):
            self.assertEqual(75, self.train("exit 75", qsub=qsub)[0])
            self.assertIn("saved in time, but qsub has failed; to resume: cd ", self.errors)
            self.assertIn("&& qsub -v TUTTI_OUT=runs/tutti-7 runs/tutti-7/job.pbs", self.errors)

    def test_saves_and_is_not_resubmitted_when_deleted(self):
        self.assertEqual((75, "mpirun 5280\n"),
                         self.train("trap 'exit 75' USR1; while :; do kill -TERM $PPID; /bin/sleep 0.05; done"))

    def test_ends_as_the_training_does(self):
        self.assertEqual((0, "mpirun 5280\n"), self.train("exit 0"))
        self.assertEqual((65, "mpirun 5280\n"), self.train("exit 65"))

    def test_submits_what_was_submitted_whatever_became_of_it(self):
        submitted = self.root / "cifar.pbs"
        (self.root / "jobs/train.pbs").rename(submitted)
        (self.root / "jobs/cifar.pbs").symlink_to(submitted)
        text = submitted.read_text(encoding="utf-8")
        self.assertEqual((75, self.again), self.train("exit 75", script="cifar.pbs"))
        self.assertEqual(text, (self.root / "runs/tutti-7/job.pbs").read_text(encoding="utf-8"))

    def test_names_what_is_missing(self):
        (self.root / "trainer").unlink()
        self.assertEqual((64, ""), self.train("exit 0"))
        self.assertIn("train.pbs: there is no ./trainer in ", self.errors)

    def test_trains_to_the_end_where_there_is_no_walltime(self):
        self.assertEqual((0, "mpirun --resume\n"), self.train("exit 0", qstat="Job_Name = tutti"))


class Hosts(Jobs):
    def train(self, mpirun, **environment):
        self.program("mpirun", mpirun)
        (self.root / "hosts.txt").write_text("# two\nn1\tslots=4\nn2:4", encoding="utf-8")
        (self.root / "runs/a").mkdir(parents=True, exist_ok=True)
        (self.root / "runs/a/exit.json").write_text('{"status":75,"rank":0}', encoding="utf-8")  # the last one's
        return self.run_job("hosts", "--out", "runs/a", **environment)[0]

    def test_ends_as_the_training_does(self):
        self.assertEqual(0, self.train("exit 0"))
        self.assertEqual(65, self.train("exit 65"))
        self.assertEqual(86, self.train("""echo '{"status":86,"rank":0}' >runs/a/exit.json; exit 1"""))

    def test_starts_again_without_the_machines_that_do_not_answer(self):
        self.program("agent", '[[ $1 != n1 ]] && echo "$1.cluster"')
        losing = SlurmJob.losing.replace("runs/tutti-7", "runs/a").replace("echo $*", 'echo "$(grep -c . "$2") $*"')
        lock = self.root / "runs/a/lock"
        lock.parent.mkdir(parents=True)
        lock.write_text("host n1, process 17\n", encoding="utf-8")
        self.assertEqual(0, self.train(losing % 1, OMPI_MCA_plm_rsh_agent=str(self.programs / "agent")))
        self.assertFalse(lock.exists())
        first, second = (self.root / "calls").read_text(encoding="utf-8").splitlines()
        self.assertIn("--hostfile hosts.txt ", first)
        self.assertIn("1 --hostfile runs/a/hosts ", second)
        self.assertEqual("n2:4\n", (self.root / "runs/a/hosts").read_text(encoding="utf-8"))
        self.assertIn("n1 is left out: it does not answer", self.errors)
        (self.root / "calls").unlink()
        self.program("agent", "exit 1")
        lock.write_text("host n11, process 17\n", encoding="utf-8")
        self.assertEqual(137, self.train(losing % 9, OMPI_MCA_plm_rsh_agent=str(self.programs / "agent")))
        self.assertTrue(lock.exists())

    def test_starts_nothing_again_that_was_stopped_while_machines_were_asked(self):
        self.program("agent", "kill -HUP $(ps -o ppid= $PPID)")
        losing = SlurmJob.losing.replace("runs/tutti-7", "runs/a")
        self.assertEqual(137, self.train(losing % 9, OMPI_MCA_plm_rsh_agent=str(self.programs / "agent")))
        self.assertEqual(1, len((self.root / "calls").read_text(encoding="utf-8").splitlines()))

    def test_leaves_out_a_wrong_host_that_is_listed_by_another_name(self):
        self.program("agent", '[[ $1 == n1 ]] && echo n3.cluster || echo "$1"')
        found = SlurmJob.found_wrong(self, 0).replace("runs/tutti-7", "runs/a")
        again = 'grep -q n1 "$2" || exit 0; '
        self.assertEqual(0, self.train(again + found, OMPI_MCA_plm_rsh_agent=str(self.programs / "agent")))
        self.assertIn("n1 is left out: it computed a wrong result", self.errors)
        self.assertEqual("n2:4\n", (self.root / "runs/a/hosts").read_text(encoding="utf-8"))

    def test_refuses_numbers_that_are_none(self):
        for name, value in (("TUTTI_RESTARTS", "no"), *[("TUTTI_LAUNCHER_SECONDS", value) for value in ("5m", "0")]):
            self.assertEqual(64, self.train("exit 0", **{name: value}))
            self.assertIn(f"{name} is '{value}'", self.errors)

    def test_kills_a_launcher_that_outlives_its_ranks(self):
        late = """trap '' TERM; echo '{"status":86,"rank":0}' >runs/a/exit.json; exec /bin/sleep 600"""
        self.assertEqual(86, self.train(late, TUTTI_LAUNCHER_SECONDS="1"))
        self.assertIn("hosts: the launcher is still there 1 s after", self.errors)
        self.assertIn("(orted) on n1 n2", self.errors)

    def test_kills_a_launcher_that_outlives_a_training_that_is_over(self):
        (self.root / "runs/a").mkdir(parents=True)
        (self.root / "runs/a/metrics.jsonl").write_text('{"event":"end","step":1}\n', encoding="utf-8")
        self.program("agent", 'echo "$1"')
        over = ("echo >>calls; [ $(wc -l <calls) = 1 ] || exit 0; echo 'host n1' >runs/a/lock; "
                """echo '{"event":"end","step":2}' >>runs/a/metrics.jsonl; exec /bin/sleep 600""")
        self.assertEqual(0, self.train(over, TUTTI_LAUNCHER_SECONDS="1",
                                       OMPI_MCA_plm_rsh_agent=str(self.programs / "agent")))
        self.assertIn("1 s after the ranks have ended: it is killed", self.errors)

    def test_kills_a_launcher_whose_ranks_do_not_begin(self):
        begins = 'echo "host n1, process $$" >runs/a/lock; '
        stop = "trap '' TERM; echo >>calls; [ $(wc -l <calls) = 1 ] || exit 65; "
        self.program("agent", 'echo "$1"')
        settings = {"TUTTI_LAUNCHER_SECONDS": "1", "OMPI_MCA_plm_rsh_agent": str(self.programs / "agent")}
        self.assertEqual(65, self.train(f"rm -rf runs/a; {stop}exec /bin/sleep 600", **settings))
        self.assertIn("1 s after it was started, and the ranks have not begun: it is killed", self.errors)
        self.assertIn("lost ranks (status 137): started again", self.errors)
        self.assertEqual(0, self.train(f"{begins}exec /bin/sleep 3", **settings))


if __name__ == "__main__":
    unittest.main()
