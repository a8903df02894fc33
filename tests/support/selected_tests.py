"""Every test of every test program is selected by some entry of CTest: selected_tests.py BUILD MPIEXEC

CTest's entries select the suites of a program by a filter that CMake derives from the sources. A suite that CMake
does not find would never run.
"""

import collections
import fnmatch
import json
import subprocess
import sys

OPTION = "--gtest_filter="


def output(*words):
    return subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout


def filters_by_program(build):
    filters = collections.defaultdict(set)
    for test in json.loads(output("ctest", "--test-dir", build, "--show-only=json-v1"))["tests"]:
        words = test.get("command", [])
        for before, word in zip(words, words[1:]):
            if word.startswith(OPTION):
                filters[before].update(word[len(OPTION):].split(":"))
    return filters


def tests_of(program, mpiexec):
    launch = [mpiexec, "-n", "1"] if program.endswith("_rank_tests") else []
    suite = ""
    for line in output(*launch, program, "--gtest_list_tests").splitlines():
        name = line.partition("#")[0].rstrip()
        if name.startswith("  "):
            yield suite + name.strip()
        elif name.endswith("."):
            suite = name


def main():
    build, mpiexec = sys.argv[1:]
    count = 0
    left_out = []
    for program, filters in filters_by_program(build).items():
        for test in tests_of(program, mpiexec):
            count += 1
            if not any(fnmatch.fnmatchcase(test, pattern) for pattern in filters):
                left_out.append(f"{program}: {test}")
    print(f"{count} tests", *left_out, sep="\n")
    sys.exit("CTest would never run these: see tutti_filter_of_suites in tools/cmake/TuttiTest.cmake" if left_out or
             count == 0 else 0)


if __name__ == "__main__":
    main()
