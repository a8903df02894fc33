"""trainer data fetch: data sets from servers on this machine."""

import gzip
import hashlib
import http.server
import io
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tools/companions"))
from tutti import fetch, program  # noqa: E402

TRAINER = os.environ["TUTTI_TRAINER"]
os.environ["no_proxy"] = "127.0.0.1"
TEXT = "".join(str(i) for i in range(200_000)).encode()


def published(name, content):
    return fetch.File(name, len(content), hashlib.sha256(content).hexdigest())


class Server:
    """Serves given files with configurable faults, and records the requests."""

    def __init__(self, test):
        self.files, self.requests = {}, []
        handler = type("Handler", (Handler,), {"server_of_test": self})
        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/"

        def close():
            self.http.shutdown()
            thread.join()
            self.http.server_close()

        test.addCleanup(close)

    def serve(self, name, content, knows_ranges=True, cut_after=None, cuts=1):
        self.files[name] = {"content": content, "ranges": knows_ranges, "cut_after": cut_after, "cuts": cuts}


class Handler(http.server.BaseHTTPRequestHandler):
    server_of_test = None

    def do_GET(self):
        name, first = self.path[1:], int(re.sub(r"\D", "", self.headers.get("Range", "0")))
        self.server_of_test.requests.append(f"{name} from {first}" if first else name)
        file = self.server_of_test.files.get(name)
        if file is None or first > len(file["content"]):
            return self.send_error(416 if file else 404)
        is_part = first > 0 and file["ranges"]
        content = file["content"][first if is_part else 0:]
        self.send_response(206 if is_part else 200)
        if is_part:
            self.send_header("Content-Range", f"bytes {first}-{len(file['content']) - 1}/{len(file['content'])}")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if file["cut_after"] is not None and file["cuts"] > 0:
            file["cuts"] -= 1
            content = content[:file["cut_after"]]
        self.wfile.write(content)
        return None

    def log_message(self, *_):
        pass


class Reporter:
    def __init__(self):
        self.notes, self.reached = [], []

    def note(self, text):
        self.notes.append(text)

    def progress(self, _, got):
        self.reached.append(got)


class Fetching(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.server, self.reporter = Server(self), Reporter()
        self.file = published("f", TEXT)

    def fetch(self, *places):
        return fetch.fetch_file(self.file, places or (self.server.url,), self.folder, self.reporter)

    def failure(self, *places):
        with self.assertRaises(program.Failure) as raised:
            self.fetch(*places)
        return raised.exception

    def nobody(self):
        """The address of a stopped server."""
        server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        server.server_close()
        return f"http://127.0.0.1:{server.server_port}/"

    def content(self, name="f"):
        return (self.folder / name).read_bytes()

    def names(self):
        return sorted(path.name for path in self.folder.iterdir())


class FetchedFile(Fetching):
    def test_is_accepted_as_published(self):
        self.server.serve("in/f", TEXT)
        self.assertEqual(self.server.url + "in/", self.fetch(self.server.url + "in/"))
        self.assertEqual(TEXT, self.content())
        self.assertEqual(["f"], self.names())
        self.assertEqual(sorted(set(self.reporter.reached)), self.reporter.reached)
        self.assertEqual(len(TEXT), self.reporter.reached[-1])

    def test_is_refused_with_another_sum_or_length(self):
        other = b"x" + TEXT[1:]
        for content, reason in ((other, f"the SHA-256 {hashlib.sha256(other).hexdigest()} instead of "),
                                (b"Please log in to this network.", "it sent 30 bytes instead of "),
                                (TEXT + b"more", "it sends more than ")):
            self.server.serve("f", content)
            failure = self.failure()
            self.assertEqual(74, failure.status)
            self.assertIn(reason, str(failure))
            self.assertEqual([], self.names(), "nothing of it stays")

    def test_is_resumed_where_a_connection_broke(self):
        self.server.serve("f", TEXT, cut_after=400_000, cuts=2)
        self.fetch()
        self.assertEqual(TEXT, self.content())
        self.assertEqual(["f", "f from 400000", "f from 800000"], self.server.requests)
        self.assertIn("resuming at byte 400000", self.reporter.notes[0])

    def test_is_resumed_from_what_an_earlier_call_has_left(self):
        self.server.serve("f", TEXT, cut_after=0, cuts=100)
        (self.folder / "f.part").write_bytes(TEXT[:1000])
        self.assertEqual(74, self.failure().status)
        self.assertEqual(TEXT[:1000], self.content("f.part"), "it stays for the next attempt")
        self.server.serve("f", TEXT)
        self.fetch()
        self.assertEqual(TEXT, self.content())
        self.assertEqual("f from 1000", self.server.requests[-1])

    def test_starts_over_at_a_server_that_cannot_resume(self):
        self.server.serve("f", TEXT, knows_ranges=False)
        (self.folder / "f.part").write_bytes(TEXT[:1000])
        self.fetch()
        self.assertEqual(TEXT, self.content())

    def test_starts_over_when_what_an_earlier_call_has_left_is_wrong(self):
        self.server.serve("f", TEXT)
        for left in (b"x" * 1000, b"x" * (len(TEXT) + 1)):
            (self.folder / "f.part").write_bytes(left)
            self.fetch()
            self.assertEqual(TEXT, self.content())
        self.server.serve("f", TEXT[:500])  # the server cannot send from byte 1000
        (self.folder / "f.part").write_bytes(TEXT[:1000])
        self.assertIn("it sent 500 bytes", str(self.failure()))

    def test_needs_no_network_when_nothing_is_missing(self):
        (self.folder / "f.part").write_bytes(TEXT)
        self.fetch(self.nobody())
        self.assertEqual(TEXT, self.content())

    def test_is_downloaded_from_the_next_server(self):
        short = Server(self)
        short.serve("f", TEXT[:3])
        self.server.serve("f", TEXT)
        places = (self.nobody(), self.server.url + "not/here/", short.url, self.server.url)
        self.assertEqual(self.server.url, self.fetch(*places))
        self.assertEqual(TEXT, self.content())

    def test_reports_a_reason_for_each_server_that_failed(self):
        gone = self.nobody()
        failure = str(self.failure(gone, self.server.url))
        self.assertIn(f"cannot fetch f: {gone}: Connection refused; {self.server.url}: HTTP status 404", failure)
        self.assertEqual([], self.names())

    def test_comes_through_a_proxy(self):
        self.server.serve("ttp://far.example/f", TEXT)  # what a proxy is asked for, less its first character
        del os.environ["no_proxy"]
        os.environ["all_proxy"] = self.server.url
        try:
            self.fetch("http://far.example/")
        finally:
            del os.environ["all_proxy"]
            os.environ["no_proxy"] = "127.0.0.1"
        self.assertEqual(TEXT, self.content())

    def test_is_written_by_one_process_at_a_time(self):
        with fetch.PartialFile(f"{self.folder}/f"):
            failure = self.failure()
        self.assertEqual(73, failure.status)
        self.assertIn("another process is writing", str(failure))


class FetchedSet(Fetching):
    """Sets of two files, and one in an archive as CIFAR-10 is published."""

    def set_of(self, *files, **more):
        return fetch.PublishedSet("s", "images", (self.server.url,), files, **more)

    def fetch_set(self, published_set, *places, folder=None):
        fetch.fetch_set(published_set, places or published_set.places, str(folder or self.folder), self.reporter)

    def packed_set(self):
        archive = io.BytesIO()
        with tarfile.open(fileobj=archive, mode="w:gz") as tar:
            for name, content in (("one.bin", TEXT), ("readme", b"not wanted"), ("names.txt", b"a\nb\n")):
                member = tarfile.TarInfo(f"in/{name}")
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
        packed = archive.getvalue()
        return packed, self.set_of(published("s.tar.gz", packed), packed_in="in",
                                   unpacked=(published("one.bin", TEXT), fetch.File("names.txt", 4096)))

    def test_gets_what_is_missing_and_keeps_what_is_there(self):
        self.server.serve("f", TEXT)
        self.server.serve("g", b"gg")
        two = self.set_of(self.file, published("g", b"gg"))
        (self.folder / "f").write_bytes(TEXT)
        self.fetch_set(two)
        self.assertEqual(["g"], self.server.requests)
        self.fetch_set(two)
        self.assertIn(f"all files of s are in '{self.folder}' already", self.reporter.notes[-1])
        self.assertEqual(1, len(self.server.requests))
        (self.folder / "g").write_bytes(b"my own")
        with self.assertRaisesRegex(program.Failure, "/g' exists, but is not the published file of 2 bytes") as raised:
            self.fetch_set(two)
        self.assertEqual(65, raised.exception.status)
        self.assertEqual(b"my own", self.content("g"))

    def test_names_the_files_to_copy_where_there_is_no_network(self):
        new, place = self.folder / "new/s", self.nobody()
        with self.assertRaises(program.Failure) as raised:
            self.fetch_set(self.set_of(self.file), place, folder=new)
        self.assertEqual(74, raised.exception.status)
        self.assertIn(f"copy these files into '{new}' and run this again:\n  f, {len(TEXT)} bytes, SHA-256 "
                      f"{self.file.sha256}\nThey are published at\n  {place}", str(raised.exception))
        self.assertEqual([], self.names(), "no empty folder stays that this has made")

    def test_is_unpacked_and_its_archive_removed(self):
        packed, published_set = self.packed_set()
        self.server.serve("s.tar.gz", packed)
        for _ in range(2):
            self.fetch_set(published_set)
            self.assertEqual(["names.txt", "one.bin"], self.names())
            self.assertEqual((TEXT, b"a\nb\n"), (self.content("one.bin"), self.content("names.txt")))
        self.assertEqual(["s.tar.gz"], self.server.requests)

    def test_is_unpacked_from_an_archive_that_the_user_has_copied(self):
        packed, published_set = self.packed_set()
        (self.folder / "s.tar.gz").write_bytes(packed)
        self.fetch_set(published_set, self.nobody())
        self.assertEqual(["names.txt", "one.bin"], self.names())

    def test_is_refused_from_an_archive_without_its_files(self):
        packed = gzip.compress(b"no archive")
        (self.folder / "s.tar.gz").write_bytes(packed)
        with self.assertRaisesRegex(program.Failure, "s.tar.gz' cannot be unpacked") as raised:
            self.fetch_set(self.set_of(published("s.tar.gz", packed), packed_in="in", unpacked=(self.file,)))
        self.assertEqual(65, raised.exception.status)


class RunTrainer(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def run_trainer(self, *words):
        return subprocess.run([TRAINER, "data", *words], cwd=self.folder, capture_output=True, text=True, check=False,
                              timeout=60)


class Command(RunTrainer):
    def test_knows_multiple_servers_of_every_file_and_its_digest(self):
        for name, published_set in fetch.SETS.items():
            self.assertEqual(name, published_set.name)
            self.assertGreaterEqual(len(published_set.places), 2, "one may be out of reach")
            for place in published_set.places:
                self.assertRegex(place, r"^https://.*/$")
            for file in published_set.downloads:
                self.assertRegex(file.sha256, "^[0-9a-f]{64}$")

    def test_refuses_what_it_does_not_know(self):
        for words, reason in ((["imagenet"], "'imagenet' (choose from"), (["mnist", "--url", "ftp://s/m"], "https://"),
                              ([], "NAME"), (["mnist", "--tto", "d"], "did you mean '--to'?")):
            refused = self.run_trainer("fetch", *words)
            self.assertEqual((64, ""), (refused.returncode, refused.stdout), refused.stderr)
            self.assertIn(reason, refused.stderr)
            self.assertIn("ee trainer data fetch --help", refused.stderr)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_prints_the_versions_of_the_trainer(self):
        self.assertIn("HDF5", self.run_trainer("fetch", "--version").stdout)

    def test_fails_with_status_74_where_nothing_serves(self):
        server = Server(self)
        for name, folder in (("mnist", "mnist"), ("cifar10-tiny", "cifar10")):
            failed = self.run_trainer("fetch", name, "--to", "d", "--url", server.url + "nowhere")
            self.assertEqual((74, ""), (failed.returncode, failed.stdout))
            self.assertIn(f"copy these files into '{self.folder.resolve() / 'd' / folder}'", failed.stderr)
        self.assertEqual([], list(self.folder.iterdir()))

    def test_makes_a_small_set_that_the_trainer_reads(self):
        full, tiny = self.folder / "full", self.folder / "tiny"
        full.mkdir()
        for batch in range(1, 6):
            (full / f"data_batch_{batch}.bin").write_bytes(
                b"".join(bytes([i % 10]) + bytes([batch]) * 3072 for i in range(300)))
        (full / "test_batch.bin").write_bytes(b"".join(bytes([9 - i % 10]) + bytes(3072) for i in range(300)))
        (full / "batches.meta.txt").write_text("a\nb\nc\nd\ne\nf\ng\nh\ni\nj\n\n", encoding="ascii")
        holds = fetch.write_tiny(str(full), str(tiny), Reporter())
        self.assertEqual("1000 training and 100 test images of 3x32x32, 10 classes", holds)
        fetch.write_tiny(str(full), str(tiny), Reporter())
        (tiny / "test_batch.bin").write_bytes(b"mine")
        with self.assertRaisesRegex(program.Failure, "test_batch.bin' exists with other content"):
            fetch.write_tiny(str(full), str(tiny), Reporter())
        (tiny / "test_batch.bin").unlink()
        fetch.write_tiny(str(full), str(tiny), Reporter())
        info = self.run_trainer("info", str(tiny))
        self.assertRegex(info.stdout, r"training +1000 images of 3x32x32")
        self.assertRegex(info.stdout, r"    9  j +100 +10\n")
        records = (tiny / "data_batch_1.bin").read_bytes()
        self.assertEqual((0, 1), (records[0], records[1]))
        self.assertEqual((9, 4), (records[-3073], records[-1]), "100 of each class are in the first four batches")


if __name__ == "__main__":
    unittest.main()
