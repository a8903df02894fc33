"""trainer forecast against formulas for cases that have one, against published figures, and what it refuses."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools/companions"))
LOADER = importlib.machinery.SourceFileLoader("forecast", str(ROOT / "tools/companions/trainer-forecast"))
SPEC = importlib.util.spec_from_loader("forecast", LOADER)
forecast = importlib.util.module_from_spec(SPEC)
LOADER.exec_module(forecast)
from tutti.program import Failure  # noqa: E402  pylint: disable=wrong-import-position

ELEMENTS = 1 << 20
LINK = {"latency": 1e-4, "bytes_per_second": 1e8}
FAST = {"latency": 0, "bytes_per_second": 1e15}
WIRE = 4 * ELEMENTS / LINK["bytes_per_second"]


def profile(images, forward, backward, **others):
    return {"images": images, "input": 0, "update": 0, "stretches": [[forward, ELEMENTS // 2], [backward, ELEMENTS]],
            **others}


def two_layers(forward=1, backward=0, **others):
    """Backward passes of two layers, the first of which makes half of the gradients; one rank a node."""
    return {"source": "this test", "model": "two", "ranks_per_node": 1, "overlaps": True, "helper_thread": True,
            "bucket_ends": [ELEMENTS // 2, ELEMENTS], "compute": [profile(32, forward, backward)], "crowding": 1,
            "jitter": [1.0], "within": None, "between": LINK, **others}


def point(content, ranks, exchange="ring", mode="weak", batch=32):
    return forecast.Forecaster(forecast.inputs_in(content, "a.json"),
                               forecast.Question(mode, exchange, batch)).point(ranks)


def seconds(content, ranks, *question):
    return point(content, ranks, *question)["step_seconds"]


class Simulation(unittest.TestCase):
    def test_of_one_rank_is_its_compute(self):
        alone = point(two_layers(compute=[profile(32, 0.3, 0.1, input=0.02, update=0.01)]), 1)
        self.assertAlmostEqual(0.43, alone["step_seconds"])
        self.assertEqual((0, 1), (alone["exposed_seconds"], alone["efficiency"]))

    def test_of_one_short_bucket_is_the_rings_formula(self):
        content = two_layers(0.4, 0, bucket_ends=[1000])
        for ranks in (2, 3, 16):
            self.assertAlmostEqual(0.4 + forecast.Link(**LINK).all_reduce_seconds(4000, ranks), seconds(content, ranks))

    def test_keeps_a_busy_link_busy(self):
        for exchange, messages in (("ring", 1), ("exact", 1), ("sharded", 1), ("central", 2)):
            self.assertAlmostEqual(1 + messages * WIRE, seconds(two_layers(), 2, exchange), delta=3e-3, msg=exchange)
        self.assertAlmostEqual(1 + 1.5 * WIRE, seconds(two_layers(), 4), delta=3e-3)

    def test_has_the_integers_that_the_program_chooses_for_as_many_parts_as_ranks(self):
        inputs = forecast.inputs_in(two_layers(), "a.json")
        for ranks, chosen, other in ((1024, "int32", "int64"), (1025, "int64", "int32")):
            made = {wire: forecast.Forecaster(inputs, forecast.Question("weak", "exact", 32, wire=wire)).point(ranks)
                    for wire in ("auto", chosen, other)}
            self.assertEqual(made[chosen], made["auto"])
            self.assertNotEqual(made[other], made["auto"])

    def test_sends_no_more_bytes_than_the_wire_has(self):
        inputs = forecast.inputs_in(two_layers(), "a.json")
        for exchange, wire, messages in (("exact", "auto", 1), ("exact", "int64", 1.5), ("ring", "bf16", 0.5),
                                         ("ring", "int64", 1), ("exact", "bf16", 1)):
            question = forecast.Question("weak", exchange, 32, wire=wire)
            made = forecast.Forecaster(inputs, question).point(2)["step_seconds"]
            self.assertAlmostEqual(1 + messages * WIRE, made, delta=3e-3, msg=f"{exchange} {wire}")

    def test_hides_what_the_compute_covers(self):
        self.assertAlmostEqual(2 + WIRE / 2, seconds(two_layers(1, 1), 2), delta=2e-3)
        self.assertAlmostEqual(2 + WIRE, seconds(two_layers(1, 1, overlaps=False), 2), delta=2e-3)
        half = {"bucket_ends": [ELEMENTS // 2]}
        self.assertAlmostEqual(2, seconds(two_layers(1, 1, **half), 2))
        self.assertGreater(seconds(two_layers(1, 1, **half, helper_thread=False), 2), 2 + WIRE / 4)

    def test_leaves_out_buckets_that_are_not_exchanged(self):
        first = two_layers(0.4, 0, bucket_ends=[1000])
        both = two_layers(0.4, 0, bucket_ends=[1000, ELEMENTS], exchanged=[True, False])
        for exchange in ("ring", "exact", "sharded", "central"):
            self.assertEqual(seconds(first, 3, exchange), seconds(both, 3, exchange))

    def test_lets_a_central_server_pay_for_every_rank(self):
        exposed = [point(two_layers(), ranks, "central")["exposed_seconds"] for ranks in (2, 3, 8, 9)]
        self.assertAlmostEqual(2 * WIRE, exposed[1] - exposed[0], delta=2e-3)
        self.assertAlmostEqual(2 * WIRE, exposed[3] - exposed[2], delta=2e-3)

    def test_shares_the_update_where_the_optimizer_is_sharded(self):
        content = two_layers(between=FAST, compute=[profile(32, 1, 0, update=0.4)])
        self.assertAlmostEqual(1.1, seconds(content, 4, "sharded"), places=6)
        self.assertAlmostEqual(1.4, seconds(content, 4, "central"), places=6)

    def test_lets_the_slower_link_bound_a_ring_and_names_one_that_is_missing(self):
        content = two_layers(ranks_per_node=4, within={"latency": 0, "bytes_per_second": 1e9})
        self.assertAlmostEqual(1 + 1.5 * WIRE / 10, seconds(content, 4), delta=1e-3)
        self.assertAlmostEqual(1 + 1.75 * WIRE, seconds(content, 8), delta=4e-3)
        self.assertEqual(3, point(content, 9)["nodes"])
        with self.assertRaisesRegex(Failure, '"between" is null, but 8 ranks at 4 a node'):
            point(content | {"between": None}, 8)

    def test_puts_shares_of_a_batch_on_a_line_through_what_was_measured(self):
        content = two_layers(0.06, 0.04, between=FAST)
        self.assertAlmostEqual(0.05, seconds(content, 4, "ring", "strong", 64), places=6)  # in proportion
        content["compute"].append(profile(64, 0.1, 0.06))
        for ranks, batch, expected in ((1, 64, 0.16), (4, 64, 0.07), (2, 96, 0.13)):
            self.assertAlmostEqual(expected, seconds(content, ranks, "ring", "strong", batch), places=6)

    def test_waits_for_the_slowest_of_many_ranks(self):
        slowest = forecast.SlowestOfRanks([0.8, 1, 1, 1.2])
        self.assertAlmostEqual(1, slowest.expected(1))
        self.assertAlmostEqual((0.8 + 8 + 1.2 * 7) / 16, slowest.expected(2))
        self.assertGreater(slowest.expected(1000), 1.2)
        band = point(two_layers(jitter=[0.8, 1, 1, 1.2], misfit=0.05), 2)
        self.assertLess(band["step_seconds_low"] * 1.05, band["step_seconds"])
        self.assertGreater(band["step_seconds_high"], band["step_seconds"] * 1.05)

    def test_names_the_ranks_at_which_another_node_stops_paying(self):
        def limit(**others):
            inputs = forecast.inputs_in(two_layers(0.1, **others), "a.json")
            return forecast.Forecaster(inputs, forecast.Question("weak", "central", 32)).stops_paying(64)

        self.assertEqual(1, limit())
        self.assertIsNone(limit(between=FAST))

    def test_goes_on_with_the_fifth_message_when_the_first_is_done(self):
        queue = forecast.Queue([forecast.Link(1, 10)])
        # Four at 2.1 .. 2.4, back at 3.1 .. 3.4, the first done at 4.2; the sixth sends at 4.4 and 5.5.
        self.assertAlmostEqual(6.5, queue.run([(2, [(2, 1, 0)])] * 6, 0))

    def test_finds_the_link_that_sums_went_over(self):
        link = forecast.Link(**LINK)
        sums = [(size, link.all_reduce_seconds(size, 3)) for size in (4096, 1 << 20, 1 << 26)]
        fitted = forecast.fit_link(sums, 3)
        self.assertAlmostEqual(1e-4, fitted.latency)
        self.assertAlmostEqual(1e8, fitted.bytes_per_second, delta=1)
        self.assertIsNone(forecast.fit_link(sums[:1], 3))
        self.assertIsNone(forecast.fit_link([(4, 1), (4_000_000, 0.01)], 2))

    def test_gives_what_tutorials_publish_of_two_gpus(self):
        """60,000 images an epoch by ResNet-18, a batch of 256 on each GPU: 13.4 s on one and 7.9 s on two where
        gradients are added on one of them; and 13.8 s and 9.5 s in another way."""
        for name, one, two in (("key-value-store", 13.4, 7.9), ("data-parallel", 13.8, 9.5)):
            path = ROOT / f"jobs/forecast/two-gpus-{name}.json"
            content = json.loads(path.read_text(encoding="utf-8"))
            for gpus, epoch in ((1, one), (2, two)):
                speed = point(content, gpus, "central", "weak", 256)["images_per_second"]
                self.assertAlmostEqual(epoch, 60_000 / speed, delta=0.05, msg=name)


class Words(unittest.TestCase):
    def test_are_a_span_of_ranks_or_single_ones(self):
        self.assertEqual([2, 4, 8, 12], forecast.parse_ranks("2..12"))
        self.assertEqual([3, 7], forecast.parse_ranks("7,3,7"))
        for wrong in ("", "0", "2..", "..4", "8..2", "1,", "-3", "2...4", "9999999", "1e3"):
            with self.assertRaises(Failure, msg=wrong) as refused:
                forecast.parse_ranks(wrong)
            self.assertEqual(64, refused.exception.status)

    def test_of_a_file_that_are_wrong_are_named_with_their_place(self):
        for change, words in (({"bucket_ends": [-1, 5]}, '"bucket_ends"/0 must be a number from 1'),
                              ({"bucket_ends": [5, 5]}, '"bucket_ends" must ascend'),
                              ({"bucket_ends": [1e30]}, "must be a whole number"),
                              ({"exchanged": [True]}, '"exchanged" must have a value for each bucket'),
                              ({"bucket_ends": [ELEMENTS + 1]}, '"compute" ends with 1048576 elements'),
                              ({"compute": [profile(0, 1, 1)]}, '"compute"/0/"images" must be a number from 1'),
                              ({"compute": []}, '"compute" must be a list of one value at least'),
                              ({"between": {"latency": None}}, '"between"/"latency" must be a number'),
                              ({"between": {"sums_of_two": [[4, 1]]}}, "does not give a link's latency and speed"),
                              ({"overlaps": 1}, '"overlaps" must be true or false'),
                              ({"source": []}, '"source" must be a text')):
            with self.assertRaises(Failure) as refused:
                forecast.inputs_in(two_layers(**change), "a.json")
            self.assertEqual(65, refused.exception.status)
            self.assertIn("a.json: ", str(refused.exception))
            self.assertIn(words, str(refused.exception))
        for content, words in (([1], "a.json must be an object"), ({"forecast": 3}, '"forecast" must be an object'),
                               ({"bench": "scaling"}, "measure again")):
            with self.assertRaisesRegex(Failure, words):
                forecast.inputs_in(content, "a.json")


class Program(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def forecast(self, content, *words):
        (self.root / "measured.json").write_text(json.dumps(content), encoding="utf-8")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            status = forecast.main([str(self.root / "measured.json"), *words])
        return status, printed.getvalue()

    @staticmethod
    def measured(factor):
        """Measurements on two hosts, where a step on both takes `factor` times the forecast."""
        link = forecast.Link(**LINK)
        inputs = two_layers(between={"sums_of_two": [[size, link.all_reduce_seconds(size, 2)]
                                                     for size in (4096, 1 << 20, 1 << 26)]})
        two = seconds(two_layers(), 2) * factor
        results = [{"mode": "weak", "exchange": "ring", "nodes": ranks, "ranks": ranks, "batch": 32 * ranks,
                    "step_seconds_median": time, "oversubscribed": False} for ranks, time in ((1, 1.0), (2, two))]
        return {"bench": "scaling", "batch_size": 32, "results": results, "forecast": {"inputs": inputs}}

    def test_prints_forecasts_next_to_measurements_and_the_error(self):
        status, printed = self.forecast(self.measured(1.04), "--ranks", "4,8", "--json", str(self.root / "made.json"))
        self.assertEqual(0, status)
        self.assertRegex(printed, r"\ncompared +weak +ring +2 +\d+\.\d+ +\d+\.\d+ +-3\.8 %")
        self.assertIn("fit error            3.8 %", printed)
        self.assertEqual(2, printed.count("\nforecast   weak     ring"))
        made = json.loads((self.root / "made.json").read_text(encoding="utf-8"))
        self.assertEqual([4, 8], [one["ranks"] for one in made["forecast"]["points"]])
        self.assertEqual(2, len(made["results"]))
        again, reprinted = self.forecast(made, "--ranks", "4,8")
        self.assertEqual((0, printed), (again, reprinted))

    def test_reads_measurements_of_versions_whose_exact_sums_had_64_bits(self):
        words = ("--exchanges", "exact", "--ranks", "4")
        of_earlier = self.forecast(self.measured(1), *words)
        self.assertEqual(of_earlier, self.forecast(self.measured(1), *words, "--wire", "int64"))
        self.assertNotEqual(of_earlier, self.forecast(self.measured(1) | {"wire": "auto"}, *words))

    def test_refuses_to_extrapolate_what_measurements_contradict(self):
        status, printed = self.forecast(self.measured(1.2))
        self.assertEqual(1, status)
        self.assertIn("no forecast: forecast and measurement differ by -16.7 % in mode weak with exchange ring on 2 "
                      "ranks, the most of the comparisons that decide (one whole node and two", printed)
        self.assertNotIn("\nforecast   weak", printed)
        status, printed = self.forecast(self.measured(1.2), "--anyway")
        self.assertEqual((0, 10), (status, printed.count("\nforecast   weak")))

    def test_names_the_row_that_decided_beside_larger_differences_that_do_not(self):
        measured = self.measured(1.12)
        more = measured["results"][1] | {"nodes": 4, "ranks": 4, "batch": 128, "step_seconds_median": 3.0}
        measured["results"].append(more)
        status, printed = self.forecast(measured)
        self.assertEqual(1, status)
        rows = re.findall(r"^compared .* (-?[0-9.]+) % .*$", printed, re.MULTILINE)
        self.assertGreater(abs(float(rows[2])), abs(float(rows[1])))
        self.assertIn(f"differ by {rows[1]} % in mode weak with exchange ring on 2 ranks", printed)
        self.assertEqual(1, printed.count("does not decide\n"))

    def test_takes_links_from_bench_allreduce_or_by_hand(self):
        link = forecast.Link(2e-4, 5e8)
        results = [{"ranks": ranks, "hosts": hosts, "bytes": size, "algorithm": "ring",
                    "seconds_median": link.all_reduce_seconds(size, ranks)}
                   for ranks, hosts in ((2, 2), (4, 4), (4, 2)) for size in (4096, 1 << 22)]
        sums = self.root / "allreduce.json"
        sums.write_text(json.dumps({"bench": "allreduce", "results": results}), encoding="utf-8")
        for words in (("--allreduce", str(sums)), ("--between", "200,0.5")):
            _, printed = self.forecast(two_layers(between=None), "--ranks", "2", *words)
            self.assertIn("link between nodes   200.0 us, 0.500 GB/s", printed)
        with self.assertRaisesRegex(Failure, '"between" is null'):
            self.forecast(two_layers(between=None), "--ranks", "2")


if __name__ == "__main__":
    unittest.main()
