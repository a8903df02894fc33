"""The environment in which a bundle runs on this machine, and its GPU and libraries."""

import fcntl
import glob
import os
import pathlib
import shutil
import site
import socket
import struct
import subprocess
import sys
import sysconfig

# Runs on one node, perhaps as root, perhaps with more ranks than cores, without ssh and without CMA.
OPEN_MPI_SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm": "isolated",
    "OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "self,vader", "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_mpi_yield_when_idle": "1"}
# Debian's Open MPI and PMIx look in absolute folders unless each is named.
BUNDLE_FOLDERS = {
    "OPAL_PREFIX": "", "OPAL_BINDIR": "bin", "OPAL_LIBDIR": "lib", "OPAL_PKGLIBDIR": "lib/openmpi",
    "OPAL_DATADIR": "share", "OPAL_PKGDATADIR": "share/openmpi", "OPAL_SYSCONFDIR": "etc/openmpi", "PMIX_PREFIX": "",
    "PMIX_PKGDATADIR": "share/pmix", "PMIX_SYSCONFDIR": "etc", "PMIX_LIBDIR": "lib", "PMIX_PKGLIBDIR": "lib/pmix",
    "HWLOC_PLUGINS_PATH": "lib/none"}
TOOLKIT_FOLDERS = ("/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib")
DRIVER_FOLDER = "/usr/local/nvidia/lib64"  # containers mount it there, outside of the loader's cache
TOOL_FOLDERS = ("/usr/local/cuda/bin", "/usr/local/cuda/compute-sanitizer", "/opt/nvidia/nsight-compute/*",
                "/usr/local/nvidia/bin")


def library_folders() -> list[str]:
    """Folders of CUDA's libraries: of Python packages (nvidia/cudnn/lib, ...), this Python's first; then toolkits."""
    roots = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib"), *sys.path, *site.getsitepackages()]
    patterns = [f"{root or '.'}/nvidia/*/lib" for root in roots]
    patterns += [f"/opt/{place}/lib/python3*/site-packages/nvidia/*/lib" for place in ("*/.venv", "*")]
    patterns += ["/usr/local/lib/python3*/dist-packages/nvidia/*/lib", *TOOLKIT_FOLDERS]
    found = [folder for pattern in patterns for folder in sorted(glob.glob(pattern)) if glob.glob(f"{folder}/*.so*")]
    return list(dict.fromkeys(found))


def loader_knows(name: str) -> bool:
    for program in ("ldconfig", "/sbin/ldconfig"):
        if shutil.which(program):
            return name in subprocess.run([program, "-p"], capture_output=True, text=True, check=False).stdout
    return False


def environment(root: pathlib.Path, cuda_libraries: list[str]) -> tuple[dict[str, str], list[str]]:
    """Returns the environment for the bundle's programs, and a line for each missing library."""
    folders = library_folders()
    if not loader_knows("libcuda.so.1") and os.path.exists(f"{DRIVER_FOLDER}/libcuda.so.1"):
        folders.append(DRIVER_FOLDER)
    missing = [name for name in [*cuda_libraries, "libcuda.so.1"]
               if not loader_knows(name) and not any(os.path.exists(f"{folder}/{name}") for folder in folders)]
    variables = {"HOME": str(root)} | os.environ | OPEN_MPI_SETTINGS  # PMIx crashes where a user has no home directory
    variables.setdefault("CUDA_MODULE_LOADING", "LAZY")  # ranks that share a GPU start 2 s sooner than with EAGER
    variables |= {name: str(root / folder) for name, folder in BUNDLE_FOLDERS.items()}
    variables["PATH"] = f"{root}/bin:{os.environ.get('PATH', os.defpath)}"
    paths = folders + [path for path in [os.environ.get("LD_LIBRARY_PATH")] if path]
    if paths:
        variables["LD_LIBRARY_PATH"] = ":".join(paths)
    return variables, [f"{name} was not found: programs that use the GPU will not start" for name in missing]


def bring_up_loopback() -> None:
    """NCCL and MPI talk over it; containers without network have it down, and no program to change that."""
    set_flags, up_and_running = 0x8914, 0x1 | 0x8 | 0x40
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        try:
            fcntl.ioctl(any_socket, set_flags, struct.pack("16sh", b"lo", up_and_running))
        except OSError:
            pass  # not root, as on a machine with a network


def python_with_torch() -> str | None:
    """Of Pythons in the usual places the first that has PyTorch."""
    places = [sys.executable, shutil.which("python3"), *sorted(glob.glob("/opt/*/.venv/bin/python3")),
              *sorted(glob.glob("/opt/*/bin/python3"))]
    for python in filter(None, places):
        code = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
        if subprocess.run([python, "-c", code], check=False, capture_output=True).returncode == 0:
            return python
    return None


def find_tool(name: str) -> str | None:
    """Finds a program of the CUDA toolkit, which may not be in PATH."""
    places = [place for pattern in TOOL_FOLDERS for place in sorted(glob.glob(pattern), reverse=True)]
    return shutil.which(name) or shutil.which(name, path=":".join(places))


def gpu() -> dict[str, str]:
    """Name and driver of the first GPU; empty where there is none."""
    program = find_tool("nvidia-smi")
    if program is None:
        return {}
    query = [program, "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    result = subprocess.run(query, capture_output=True, text=True, check=False)
    fields = [field.strip() for field in result.stdout.split("\n")[0].split(",")]
    return dict(zip(("gpu", "driver", "memory"), fields)) if result.returncode == 0 and len(fields) == 3 else {}
