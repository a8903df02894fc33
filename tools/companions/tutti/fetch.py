"""Standard data sets: where they are published, and how to download one into a folder, completely or with an error."""

import contextlib
import dataclasses
import errno
import fcntl
import hashlib
import http.client
import os
import pathlib
import ssl
import stat
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zlib

from tutti.program import BAD_INPUT, CANNOT_READ, CANNOT_SAVE, Failure, describe, print_note

SERVER_TIMEOUT = 30  # seconds without an answer or data from a server
MOST_RECONNECTS = 20  # for one file from one server, each with new data
BYTES_AT_ONCE = 1 << 18


@dataclasses.dataclass(frozen=True)
class File:
    name: str
    bytes: int
    sha256: str = ""  # empty: the archive's digest covers it, and `bytes` is its largest size


@dataclasses.dataclass(frozen=True)
class PublishedSet:
    name: str
    holds: str
    places: tuple  # URLs to which a file's name is added
    downloads: tuple  # the same files at every place
    packed_in: str = ""  # folder inside the downloaded archive; empty: nothing is unpacked
    unpacked: tuple = ()

    @property
    def files(self):
        return self.unpacked or self.downloads


SETS = {published.name: published for published in (
    PublishedSet(
        "mnist", "60000 training and 10000 test images of 1x28x28, 10 classes",
        ("https://storage.googleapis.com/cvdf-datasets/mnist/", "https://ossci-datasets.s3.amazonaws.com/mnist/"),
        (File("train-images-idx3-ubyte.gz", 9912422,
              "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"),
         File("train-labels-idx1-ubyte.gz", 28881, "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c"),
         File("t10k-images-idx3-ubyte.gz", 1648877, "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"),
         File("t10k-labels-idx1-ubyte.gz", 4542, "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6"))),
    PublishedSet(
        "fashion-mnist", "60000 training and 10000 test images of 1x28x28, 10 classes",
        ("https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion/",
         "https://storage.googleapis.com/tensorflow/tf-keras-datasets/"),
        (File("train-images-idx3-ubyte.gz", 26421880,
              "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"),
         File("train-labels-idx1-ubyte.gz", 29515, "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"),
         File("t10k-images-idx3-ubyte.gz", 4422102, "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"),
         File("t10k-labels-idx1-ubyte.gz", 5148, "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"))),
    PublishedSet(
        "cifar10", "50000 training and 10000 test images of 3x32x32, 10 classes",
        ("https://www.cs.toronto.edu/~kriz/",
         "https://storage.googleapis.com/s4tf-hosted-binaries/datasets/CIFAR10/"),
        (File("cifar-10-binary.tar.gz", 170052171,
              "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd"),),
        "cifar-10-batches-bin",
        (File("data_batch_1.bin", 30730000, "cee916563c9f80d84e3cc88e17fdc0941787f1244f00a67874d45b261883ada5"),
         File("data_batch_2.bin", 30730000, "a591ca11fa1708a91ee40f54b3da4784ccd871ecf2137de63f51ada8b3fa57ed"),
         File("data_batch_3.bin", 30730000, "bbe8596564c0f86427f876058170b84dac6670ddf06d79402899d93ceea26f67"),
         File("data_batch_4.bin", 30730000, "014e562d6e23c72197cc727519169a60359f5eccd8945ad5a09d710285ff4e48"),
         File("data_batch_5.bin", 30730000, "755304fc0b379caeae8c14f0dac912fbc7d6cd469eb67a1029a08a39453a9add"),
         File("test_batch.bin", 30730000, "8e2eb146ae340b09e24670f29cabc6326dba54da8789dab6768acf480273f65b"),
         File("batches.meta.txt", 4096))))}

# The first images of each class of CIFAR-10, which train in seconds: for a first try, for lessons and for tests.
TINY, TINY_OF = "cifar10-tiny", "cifar10"
TINY_PER_CLASS = {"data_batch": 100, "test_batch": 10}
CIFAR_CLASSES = 10
CIFAR_RECORD_BYTES = 1 + 3 * 32 * 32
NAMES = (*SETS, TINY)


class Reporter:
    """Prints notes on stderr, and a progress line for each file on a terminal."""

    def __init__(self, progress, quiet):
        self.quiet = quiet
        can_draw = sys.stderr is not None and not stat.S_ISREG(os.fstat(2).st_mode)
        self.draws = can_draw and (progress == "always" or (progress == "auto" and os.isatty(2) and not quiet))
        self.name = ""

    def note(self, text):
        if self.name:
            sys.stderr.write("\r\x1b[K")
            self.name = ""
        if not self.quiet:
            print_note(text)

    def progress(self, file, got):
        now = time.monotonic()
        if not self.draws:
            return
        if self.name != file.name:
            self.name, self.first, self.since, self.drawn = file.name, got, now, 0
        if now - self.drawn < 0.1:
            return
        self.drawn = now
        speed = (got - self.first) / (now - self.since) if now > self.since else 0
        sys.stderr.write(f"\r\x1b[K{file.name} {got / 2**20:.1f} of {file.bytes / 2**20:.1f} MiB, "
                         f"{100 * got // file.bytes} %, {speed / 2**20:.1f} MiB/s")
        sys.stderr.flush()


@contextlib.contextmanager
def saving(path):
    try:
        yield
    except OSError as error:
        raise Failure(CANNOT_SAVE, f"cannot save '{path}': {describe(error)}; free space or allow writing there, or "
                                   "choose another --to") from error


class PartialFile:
    """A file that arrives in pieces, perhaps over several calls. PATH.part has the received bytes."""

    def __init__(self, path):
        self.path, self.temporary = path, path + ".part"
        with saving(path):
            self.descriptor = os.open(self.temporary, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
            self.bytes = os.fstat(self.descriptor).st_size
        try:
            fcntl.flock(self.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno == errno.EWOULDBLOCK:  # some file systems have no locks
                raise Failure(CANNOT_SAVE, f"cannot save '{path}': another process is writing '{self.temporary}'; wait "
                                           "for it, or choose another --to") from error

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.bytes == 0 and os.path.exists(self.temporary):
            os.unlink(self.temporary)
        os.close(self.descriptor)

    def append(self, data):
        with saving(self.path):
            while data:
                written = os.write(self.descriptor, data)
                self.bytes += written
                data = data[written:]

    def clear(self):
        with saving(self.path):
            os.ftruncate(self.descriptor, 0)
        self.bytes = 0

    def keep(self):
        with saving(self.path):
            os.fsync(self.descriptor)
            os.replace(self.temporary, self.path)


def write_atomically(path, chunks):
    with PartialFile(path) as part:
        part.clear()
        try:
            for chunk in chunks:
                part.append(chunk)
            part.keep()
        except BaseException:
            part.clear()
            raise


def sha256_of(path):
    digest = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            while chunk := file.read(1 << 20):
                digest.update(chunk)
    except OSError as error:
        raise Failure(CANNOT_READ, f"cannot read '{path}': {describe(error)}") from error
    return digest.hexdigest()


class OtherFile(Exception):
    """The received file is not the published one. All files from it are deleted."""


class Download:
    """The download of one file from the servers that publish it."""

    def __init__(self, file, part, reporter):
        self.file, self.part, self.reporter = file, part, reporter
        proxies = urllib.request.getproxies()
        if "all" in proxies:
            proxies = {"http": proxies["all"], "https": proxies["all"]} | proxies
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler(proxies))

    def fetch_from(self, place):
        """Returns None if the file is complete, else why this server failed."""
        had_older_bytes = self.part.bytes > 0
        reason = self._attempt(place)
        return self._attempt(place) if reason and had_older_bytes and self.part.bytes == 0 else reason

    def _attempt(self, place):
        try:
            reason = self._fill(place + self.file.name)
            if self.part.bytes < self.file.bytes:
                return reason
            found = sha256_of(self.part.temporary)
            if found != self.file.sha256:
                raise OtherFile(f"it sent a file with the SHA-256 {found} instead of {self.file.sha256}")
        except OtherFile as other:
            self.part.clear()
            return str(other)
        self.part.keep()
        return None

    def _fill(self, url):
        reason = ""
        for _ in range(MOST_RECONNECTS):
            before = self.part.bytes
            if before == self.file.bytes:
                break
            reason = self._receive(url)
            if not reason and self.part.bytes < self.file.bytes:
                raise OtherFile(f"it sent {self.part.bytes} bytes instead of {self.file.bytes}")
            if self.part.bytes == before or self.part.bytes == self.file.bytes:
                break
            self.reporter.note(f"{url}: {reason}; resuming at byte {self.part.bytes}")
        return reason

    def _receive(self, url):
        """Requests the rest of the file and appends it. Returns why the answer ended early, or ""."""
        first = self.part.bytes
        request = urllib.request.Request(url, headers={"User-Agent": "tutti"})
        if first:
            request.add_header("Range", f"bytes={first}-")
        try:
            with self.opener.open(request, timeout=SERVER_TIMEOUT) as response:
                if first and not response.headers.get("Content-Range", "").startswith(f"bytes {first}-"):
                    self.part.clear()  # the server sends the whole file
                self._append_all(response)
            return ""
        except urllib.error.HTTPError as error:
            if first and error.code == http.HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                self.part.clear()
            return f"HTTP status {error.code}"
        except (OSError, http.client.HTTPException, ValueError) as error:
            return reason_of(error)

    def _append_all(self, response):
        left = response.length
        while chunk := response.read1(BYTES_AT_ONCE):
            if len(chunk) > self.file.bytes - self.part.bytes:
                raise OtherFile(f"it sends more than {self.file.bytes} bytes")
            self.part.append(chunk)
            self.reporter.progress(self.file, self.part.bytes)
            left = None if left is None else left - len(chunk)
        if left:
            raise ConnectionError(f"the connection broke with {left} bytes missing")


def reason_of(error):
    if isinstance(error, urllib.error.URLError) and isinstance(error.reason, Exception):
        error = error.reason
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted ({error.verify_message}); SSL_CERT_FILE may name a file of certificates"
    if isinstance(error, TimeoutError):
        return f"it was silent for {SERVER_TIMEOUT} seconds"
    return (describe(error) if isinstance(error, OSError) else str(error)) or type(error).__name__


def fetch_file(file, places, folder, reporter):
    """Returns the server that sent the file."""
    reasons = []
    with PartialFile(f"{folder}/{file.name}") as part:
        if part.bytes > file.bytes:
            part.clear()
        if part.bytes:
            reporter.note(f"resuming '{part.temporary}' at {part.bytes} of {file.bytes} bytes")
        download = Download(file, part, reporter)
        for place in places:
            reason = download.fetch_from(place)
            if reason is None:
                return place
            reasons.append(f"{place}: {reason}")
    raise Failure(CANNOT_READ, f"cannot fetch {file.name}: {'; '.join(reasons)}")


def is_there(file, folder):
    """Whether the folder has this file. Other files of that name are refused, never overwritten."""
    path = f"{folder}/{file.name}"
    if not os.path.lexists(path):
        return False
    if os.path.isfile(path):
        found = os.path.getsize(path)
        if found <= file.bytes if not file.sha256 else found == file.bytes and sha256_of(path) == file.sha256:
            return True
    with_sum = f" with the SHA-256 {file.sha256}" if file.sha256 else ""
    raise Failure(BAD_INPUT, f"'{path}' exists, but is not the published file of {file.bytes} bytes{with_sum}: remove "
                             "or rename it, or choose another --to")


def are_there(files, folder):
    return all([is_there(file, folder) for file in files])  # checks all files before a download


@contextlib.contextmanager
def made_folder(folder):
    """Makes the folder and its parents. Those that stay empty are removed again."""
    path = pathlib.Path(os.path.abspath(folder))
    made = [each for each in (path, *path.parents) if not each.exists()]
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise Failure(CANNOT_SAVE,
                      f"cannot make the folder '{folder}': {describe(error)}; choose another --to") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            for each in made:
                each.rmdir()


def without_network(published, places, folder):
    lines = [f"Where there is no network, copy these files into '{os.path.abspath(folder)}' and run this again:"]
    lines += [f"  {file.name}, {file.bytes} bytes, SHA-256 {file.sha256}" for file in published.downloads]
    return "\n".join([*lines, "They are published at", *(f"  {place}" for place in places)])


def unpack(published, folder, reporter):
    archive = f"{folder}/{published.downloads[0].name}"
    reporter.note(f"unpacking '{archive}'")
    wanted = {f"{published.packed_in}/{file.name}": file for file in published.files}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                file = wanted.pop(member.name, None)
                if file is None:
                    continue
                if not member.isfile() or member.size > file.bytes:
                    raise tarfile.TarError(f"'{member.name}' is not a file of at most {file.bytes} bytes")
                content = tar.extractfile(member)
                write_atomically(f"{folder}/{file.name}", iter(lambda: content.read(1 << 20), b""))
        if wanted:
            raise tarfile.TarError(f"'{min(wanted)}' is missing")
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise Failure(BAD_INPUT, f"'{archive}' cannot be unpacked: {error}") from error
    are_there(published.files, folder)
    with contextlib.suppress(OSError):
        os.unlink(archive)


def fetch_set(published, places, folder, reporter):
    with made_folder(folder):
        if are_there(published.files, folder):
            reporter.note(f"all files of {published.name} are in '{folder}' already, as published")
            return
        for file in published.downloads:
            if is_there(file, folder):
                continue
            try:
                place = fetch_file(file, places, folder, reporter)
            except Failure as failure:
                if failure.status == CANNOT_READ:
                    raise Failure(CANNOT_READ, f"{failure}\n{without_network(published, places, folder)}") from failure
                raise
            reporter.note(f"{file.name} from {place}, SHA-256 as published")
        if published.packed_in:
            unpack(published, folder, reporter)


def write_new(path, content):
    """Refuses to replace a file of other content."""
    if not os.path.lexists(path):
        return write_atomically(path, [content])
    if os.path.isfile(path) and pathlib.Path(path).read_bytes() == content:
        return None
    raise Failure(BAD_INPUT, f"'{path}' exists with other content: remove or rename it, or choose another --to")


def write_tiny(full, folder, reporter):
    """Writes the first records of each class from a folder of CIFAR-10's batches. Returns their counts."""
    names = [file.name for file in SETS[TINY_OF].files]
    with made_folder(folder):
        for prefix, per_class in TINY_PER_CLASS.items():
            batches = [f"{full}/{name}" for name in names if name.startswith(prefix)]
            target = f"{folder}/{'data_batch_1' if prefix == 'data_batch' else prefix}.bin"
            write_new(target, b"".join(first_records(batches, per_class)))
        classes = pathlib.Path(full, "batches.meta.txt").read_bytes().splitlines()
        write_new(f"{folder}/batches.meta.txt", b"".join(name + b"\n" for name in classes if name))
    training, test = TINY_PER_CLASS.values()
    reporter.note(f"{TINY}: the first {training} training and {test} test images of each class of '{full}'")
    return f"{training * CIFAR_CLASSES} training and {test * CIFAR_CLASSES} test images of 3x32x32, 10 classes"


def first_records(batches, per_class):
    left = [per_class] * CIFAR_CLASSES
    for batch in batches:
        with open(batch, "rb") as file:
            while any(left) and (record := file.read(CIFAR_RECORD_BYTES)):
                if left[record[0]]:
                    left[record[0]] -= 1
                    yield record
