"""The manual page and the completion of shells: trainer --man-page and --completion."""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/companions"))
from tutti import manual  # noqa: E402
from tutti.listing import Command, Listing, Option  # noqa: E402

TRAINER = os.environ["TUTTI_TRAINER"]


def run(*words):
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)


class Completion(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.script = pathlib.Path(folder.name, "script")
        cls.script.write_text(run(TRAINER, "--completion", "bash").stdout, encoding="utf-8")

    def offered(self, *line):
        """What bash offers for the last of these words."""
        words = " ".join(f"'{word}'" for word in ("trainer", *line))
        offered = run("/bin/bash", "-c", f". {self.script}; COMP_WORDS=({words}); COMP_CWORD={len(line)}; _trainer; "
                                         "printf '%s\\n' \"${COMPREPLY[@]}\"; complete -p trainer")
        self.assertEqual((0, ""), (offered.returncode, offered.stderr))
        *found, registered = offered.stdout.splitlines()
        self.assertEqual("complete -F _trainer trainer", registered)
        return [word for word in found if word]

    def test_offers_commands_by_their_words(self):
        self.assertEqual(["inspect"], self.offered("ins"))
        self.assertEqual(["allreduce"], self.offered("bench", "all"))
        self.assertEqual(["info"], self.offered("data", "i"))
        self.assertEqual(["convert", "fetch", "info", "show"], sorted(self.offered("data", "")))
        self.assertEqual(["tour"], self.offered("to"))
        self.assertEqual("train", self.offered("")[0])

    def test_offers_the_options_of_the_command_and_no_others(self):
        self.assertEqual(["--weight-decay"], self.offered("--weight-d"))
        self.assertEqual(["--momentum"], self.offered("train", "--batch-size", "8", "--mom"))
        self.assertEqual(["--timed-steps"], self.offered("bench", "step", "--timed"))
        self.assertEqual([], self.offered("diff", "a", "--ep"))
        self.assertEqual([], self.offered("eval", "--on", "test", "--batch"))
        self.assertEqual(["--beside"], self.offered("data", "show", "--besi"))
        self.assertEqual(["--url"], self.offered("data", "fetch", "mnist", "--ur"))

    def test_offers_the_words_that_an_option_chooses_among(self):
        self.assertEqual(["sgd", "adamw", "lars"], self.offered("--optimizer", ""))
        self.assertEqual(["adamw"], self.offered("--optimizer", "=", "ad"))
        self.assertEqual(["sgd", "adamw", "lars"], self.offered("--optimizer", "="))
        self.assertEqual(["test", "train", "any"], self.offered("eval", "--on", ""))
        self.assertEqual(["test", "train", "all"], self.offered("predict", "--on", ""))
        self.assertEqual(["auto", "always", "never"], self.offered("data", "fetch", "--progress", ""))
        self.assertEqual(["resnet18", "resnet18-imagenet"], self.offered("--model", "resnet1"))
        self.assertEqual([], self.offered("--epochs", ""))

    def test_is_read_by_the_shells_that_are_here(self):
        for shell in os.environ["TUTTI_SHELLS"].split():
            self.script.with_suffix(".other").write_text(
                run(TRAINER, "--completion", pathlib.Path(shell).name).stdout, encoding="utf-8")
            read = run(shell, "-n", self.script.with_suffix(".other"))
            self.assertEqual((0, "", ""), (read.returncode, read.stdout, read.stderr), shell)

    def test_is_refused_for_a_shell_that_is_not_known(self):
        refused = run(TRAINER, "--completion", "tcsh")
        self.assertEqual((64, ""), (refused.returncode, refused.stdout))
        self.assertIn("bash", refused.stderr)


class AllTexts(unittest.TestCase):
    def test_have_every_command_and_every_option_of_its_help(self):
        bash, zsh, fish = (run(TRAINER, f"--completion={shell}").stdout for shell in ("bash", "zsh", "fish"))
        page = run(TRAINER, "--man-page").stdout.replace("\\-", "-")
        commands = re.findall(r"^  ([a-z]+(?: [a-z]+)?) {2,}\S", run(TRAINER, "help").stdout, re.MULTILINE)
        self.assertGreater(len(commands), 15)
        for command in commands:
            self.assertIn(rf"\fBtrainer {command}", page)
            for option in set(re.findall(r"(?<=--)[a-z][a-z0-9-]+", run(TRAINER, *command.split(), "--help").stdout)):
                for text, mark in ((bash, "--"), (zsh, "--"), (page, "--"), (fish, " -l ")):
                    self.assertRegex(text, rf"{re.escape(mark + option)}[ \[=)'|\n\\]", command)


class ManualPage(unittest.TestCase):
    def page(self):
        lr = Option("lr", "learning rate", "Training", "FLOAT", "0.05")
        best = Option("keep-best", r".h5 of the best; C:\run", "Keeping")
        operands = (Option("source", "what to read", value="TEXT", required=True),
                    Option("images", "more", value="TEXT", list=True))
        timed = Option("timed-steps", "steps measured", "Bench", "INT", "20")
        other = Option("keep-best", "the best round alone", "Bench")
        return manual.page(Listing("tutti", "1.2", "Exit status: 0 done", (
            Command("train", "trains", (), (lr, best)),
            Command("bench step", "training steps", operands, (lr, other, timed)))))

    def test_has_the_default_commands_options_by_group(self):
        page = self.page()
        self.assertTrue(page.startswith('.TH "TUTTI" 1 "" "Tutti 1.2"'), page)
        self.assertIn(".SS Training\n.TP\n\\fB\\-\\-lr\\fR \\fIFLOAT\\fR\nlearning rate [0.05]\n", page)
        self.assertIn(".SH EXIT STATUS\n0 done\n", page)

    def test_has_of_other_commands_what_they_have_alone(self):
        page = self.page()
        self.assertIn(".SS bench step\n\\fBtutti bench step\\fR "
                      "\\fISOURCE\\fR [\\fIIMAGES\\fR...] [\\fIOPTION\\fR]...\n", page)
        self.assertIn("\\fB\\-\\-timed\\-steps\\fR \\fIINT\\fR\nsteps measured [20]\n", page)
        self.assertIn("\\fB\\-\\-keep\\-best\\fR\nthe best round alone\n", page)
        self.assertIn("Also of train: \\fB\\-\\-lr\\fR.\n", page)

    def test_escapes_dots_hyphens_and_backslashes(self):
        self.assertIn("\n\\&.h5 of the best; C:\\erun\n", self.page())
        self.assertNotIn("\n\n", self.page(), "man would break the page there")


if __name__ == "__main__":
    unittest.main()
