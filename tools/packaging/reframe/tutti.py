"""A ReFrame 4 test of an installed Tutti: on 1, 2 and 4 ranks, it ends with the weights that README.md names for all
CPUs. SITE.py is your site's configuration; its launcher must belong to the MPI that Tutti was built with:

    reframe -C SITE.py -c tools/packaging/reframe/tutti.py -r -S modules=tutti
"""

import pathlib
import re

import reframe as rfm
import reframe.utility.sanity as sn

README = pathlib.Path(__file__).resolve().parents[3] / "README.md"


@rfm.simple_test
class TuttiTest(rfm.RunOnlyRegressionTest):
    valid_systems = ["*"]
    valid_prog_environs = ["*"]
    executable = "tutti"  # if it is not in PATH: -S executable=PREFIX/bin/tutti
    executable_opts = ["--parts", "8", "--device", "cpu"]
    time_limit = "10m"
    ranks = parameter([1, 2, 4])
    weights = variable(str, value=re.search(r"with the weights `([0-9a-f]{16})`", README.read_text("utf-8"))[1])

    @run_after("init")
    def set_num_tasks(self):
        self.num_tasks = self.ranks

    @sanity_function
    def has_these_weights_from_all_ranks(self):
        return sn.all([sn.assert_found(rf"\b{self.ranks} ranks? on ", self.stderr),
                       sn.assert_found(rf"done after \d+ steps, weights {self.weights}$", self.stderr)])

    @performance_function("images/s")
    def fastest_epoch(self):
        return sn.max(sn.extractall(r"^epoch .* (\d+) images/s", self.stdout, 1, float))
