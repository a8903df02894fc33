"""trainer data fetch with the published files, from a network that ends at this machine."""

import os
import pathlib
import unittest

import data_fetch_test


class PublishedData(data_fetch_test.RunTrainer):
    """The published files, which lie in the folder that TUTTI_DATA names."""

    def test_fetches_fashion_mnist_so_that_its_name_finds_it(self):
        source = pathlib.Path(os.environ["TUTTI_DATA"], "fashion-mnist")
        server = data_fetch_test.Server(self)
        for file in data_fetch_test.fetch.SETS["fashion-mnist"].files:
            server.serve(file.name, (source / file.name).read_bytes(), cut_after=3_000_000)
        fetched = self.run_trainer("fetch", "fashion-mnist", "--url", server.url, "--progress", "always")
        self.assertEqual("data/fashion-mnist: 60000 training and 10000 test images of 1x28x28, 10 classes; train on "
                         f"it: {data_fetch_test.TRAINER} --data fashion-mnist\n", fetched.stdout, fetched.stderr)
        self.assertIn(f"train-labels-idx1-ubyte.gz from {server.url}, SHA-256 as published", fetched.stderr)
        self.assertIn("resuming at byte 3000000", fetched.stderr)
        self.assertIn(" of 25.2 MiB, ", fetched.stderr)
        self.assertRegex(self.run_trainer("info", "fashion-mnist").stdout, r"training +60000 images of 1x28x28")


if __name__ == "__main__":
    unittest.main()
