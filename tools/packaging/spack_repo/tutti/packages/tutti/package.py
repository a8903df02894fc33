import pathlib

from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Tutti(CMakePackage, CudaPackage):
    """Deep-learning training that behaves like an HPC code."""

    # The checkout that this recipe is in, whose version is that of its CMakeLists.txt: spack dev-build tutti@main
    # there, or spack install tutti@main, from its branch main.
    git = pathlib.Path(__file__).resolve().parents[6].as_uri()
    homepage = f"{git}/README.md"

    version("main", branch="main")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.23:", type="build")
    depends_on("ninja", type="build")
    depends_on("gzip", type="build")
    depends_on("mpi")
    depends_on("hdf5@1.10.7: ~mpi")
    depends_on("fmt")
    depends_on("zlib-api")
    depends_on("jpeg")
    depends_on("libpng")
    depends_on("libtiff")
    depends_on("python@3.9:", type=("build", "run"))
    depends_on("nlohmann-json", type="build")
    depends_on("toml11@3.7:", type="build")
    with when("+cuda"):
        depends_on("cuda@12:")
        depends_on("cudnn@9:")
        depends_on("nccl@2.27:")

    requires("target=x86_64:", "target=aarch64:", policy="one_of", msg="Tutti has code for these processors only")
    conflicts("%gcc@:10", msg="Tutti is C++20: g++ 11 or newer")

    def cmake_args(self):
        args = [self.define("TUTTI_TESTS", False), self.define("TUTTI_CUDA", self.spec.satisfies("+cuda"))]
        if self.spec.satisfies("+cuda") and "none" not in self.spec.variants["cuda_arch"].value:
            args.append(self.builder.define_cuda_architectures(self))
        return args

    def setup_run_environment(self, env):
        env.set("TUTTI_ROOT", self.prefix)
